"""`rioni audit list` and `denials`, compared with `rioni audit`: each reports its source."""


def test_each_command_says_where_its_answer_comes_from(rioni, broker, data):
    local = f"Read on this host from {data}; `rioni audit list` asks a running broker.\n"
    assert rioni("audit", "--data", data)[::2] == (0, local)
    remote = f"From the broker at {broker.url} (RIONI_URL); `rioni audit` reads the data on this host.\n"
    for command in ("list", "denials"):
        code, out, err = rioni("audit", command)
        # Tests share the broker: it may have no refusals, or more than a page of them.
        assert (code, err.splitlines(keepends=True)[:1]) == (0, [remote])
        assert bool(out) != ("None found." in err)
        code, _, err = rioni("audit", command, "--json")
        assert (code, remote in err) == (0, False)
    assert rioni("audit", "--data", data, "--json")[::2] == (0, "")
