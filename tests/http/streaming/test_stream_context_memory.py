from rioni.http.streaming.stream_context import StreamMemory


def test_the_memory_of_a_process_is_divided_among_its_streams():
    """Reference low-level-streams#memory-limit."""
    memory = StreamMemory(bytes_max=90)
    assert memory.share() == 90
    for streams in (1, 2, 3):
        memory.open()
        assert memory.share() == 90 // streams
    memory.close()
    assert memory.share() == 45
