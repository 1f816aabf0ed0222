"""How many messages gave way, as a store counts them also after a reset."""

from checks import check, equal, run
from store_media import Flash, Flashed, Rtc, kept

from umotemq.outage import Ring
from umotemq.store import RtcStore


@check
def what_gave_way_is_counted_also_after_a_reset():
    for media, make in ((Flash(), Flashed), (Rtc(), lambda rtc: RtcStore(rtc, 600))):
        store = make(media)
        for sequence in range(1, 100):
            store.append(sequence, 0, 1, b"%d" % sequence + bytes(sequence % 7))
            if sequence % 9 == 0:  # a reset
                before = store.dropped
                store = make(media)
                equal(store.dropped, before, "after %d" % sequence)
        found = kept(store)
        equal((store.count, store.dropped), (len(found), 99 - len(found)))
        store.confirm(99)
        store.append(100, 0, 1, b"100" + bytes(2))
        equal((make(media).dropped, kept(make(media))), (99 - len(found), [100]))
        equal(Ring(100, store=make(media)).dropped, 99 - len(found))


@check
def a_message_as_long_as_a_segment_leaves_no_room_for_the_count():
    for media, make in ((Flash(), Flashed), (Rtc(), lambda rtc: RtcStore(rtc, 416))):
        size = make(media)._size - 16
        store = make(media)
        for sequence in range(1, 6):
            store.append(sequence, 0, 1, bytes(size))
        store = make(media)
        equal([store.read(n)[0] for n in range(5 - store.count, 5)][-1], 5)
        equal(len(store.read(4)[2]), size)


run()
