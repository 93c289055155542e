"""One-line descriptions of timeline changes for the audit trail.

Source: reference timelines#timeline-model.
"""

from rioni.domain.timelines.timeline import Timeline, Timelines


def describe_change(topic: str, before: Timelines | None, after: Timelines | None) -> str:
    """What a change of timelines has done.

    Args:
        topic: of the domain event.
        before: the timelines before it.
        after: the timelines after it.
    """
    text = ""
    match topic, before, after:
        case "timeline.opened", _, Timelines(active=active):
            text = f"begins in {_place(active)}, partitions: {active.partitions}"
        case "timeline.switch-started", _, Timelines(active=active, switch=switch) if switch:
            text = f"is to go on from {_place(active)} to {_place(switch.timeline)}"
        case "timeline.close-started", _, Timelines(active=active):
            text = f"is about to end in {_place(active)}"
        case "timeline.switched", Timelines(active=old), Timelines(timelines=timelines, active=active):
            ends = ", ".join(map(str, timelines[-2].latest_position or ()))
            text = f"goes on in {_place(active)}; {_place(old)} ends at {ends}"
        case "timeline.switch-aborted", Timelines(active=active, switch=switch), _ if switch:
            text = f"stays in {_place(active)}; {_place(switch.timeline)} is not used"
        case "timeline.cleaned-up", Timelines(readable=old), Timelines(readable=left):
            gone = [_place(each) for each in old if all(each.id != other.id for other in left)]
            text = f"has lost the events of {', '.join(gone)} to retention"
        case "timeline.digested", Timelines(digested=old), Timelines(digested=new, timelines=timelines):
            read = [_place(each) for each in timelines if old.get(each.order) != new.get(each.order)]
            text = f"has digests of the records of {', '.join(read)}"
        case "timeline.repartitioned", Timelines(active=old), Timelines(active=new):
            text = f"has {new.partitions} partitions instead of {old.partitions}"
        case "timeline.deleted", Timelines(readable=old), _:
            text = f"is gone, and with it {', '.join(map(_place, old))}"
    return text


def _place(timeline: Timeline) -> str:
    return f"timeline {timeline.order} (storage {timeline.storage_id})"
