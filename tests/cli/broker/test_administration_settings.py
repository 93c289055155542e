"""`rioni settings`: what people see, and what is checked before the broker is asked."""


def test_attributes_are_written_with_a_colon(rioni):
    code, _, err = rioni("settings", "set-admins", "--admin", "jane", "--yes")
    assert code == 2
    assert "user" in err or "service:shop" in err
    admins = rioni("settings", "admins")[1].splitlines()
    assert admins[0].split() == ["admins", "service:stups_nakadi"]


def test_types_of_the_blacklist_may_be_written_in_lower_case(rioni, name):
    assert rioni("settings", "block", "producer_app", name)[0] == 0
    assert f"PRODUCER_APP  {name}" in rioni("settings", "blacklist")[1]
    assert rioni("settings", "unblock", "producer_app", name)[0] == 0
    assert name not in rioni("settings", "blacklist")[1]
    code, _, err = rioni("settings", "block", "producer", name)
    assert code == 2
    assert "consumer_et" in err
