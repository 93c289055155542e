// Before the page is drawn, so that it never flashes in the other theme, and times have room.
const zone = localStorage.getItem("zone");
if (zone) document.documentElement.dataset.zone = zone;
const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
document.documentElement.classList.add("scripts");
