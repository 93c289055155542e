// Before the page is drawn, so that it never flashes in the other theme.
const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
document.documentElement.classList.add("scripts");
