"""What can be wrong in runtime/shm: what, where it shows (words of families' names), the file, its text, the wrong one.

prepare.py puts them into copies of the files, each behind a condition; interleave_mistakes switches them on one by one.
"""

MISTAKES = [
    # H1: a bcast of a page, then others, then an allgatherv of unequal lengths returned bytes of the latter as the former.
    ('a rank waits for the place of the longest input and writes into that of its own', 'fused, 2 ranks: two calls',
     'fused.cpp',
     'FLX_TRY(begin(counts[rank_] * element, longest, waiter));',
     'FLX_TRY(begin(longest, waiter)); own_bytes_ = counts[rank_] * element;'),
    ('the number is shown before the payload', 'fused, 2 ranks: each', 'fused.cpp',
     '''    if (own_bytes_ != 0)
        std::memcpy(own_place(), data, own_bytes_);
    show_written(signature);''',
     'show_written(signature); if (own_bytes_ != 0) std::memcpy(own_place(), data, own_bytes_);'),
    ('the number is shown without a release', 'fused, 2 ranks: each', 'fused.cpp',
     'mine.number.store(number_, std::memory_order_release);',
     'mine.number.store(number_, std::memory_order_relaxed);'),
    ('the number is awaited without an acquire', 'fused, 2 ranks: each', 'fused.cpp',
     '''    while (theirs.number.load(std::memory_order_acquire) != number_)
        FLX_TRY(waiter.pause());''',
     'while (theirs.number.load(std::memory_order_relaxed) != number_) FLX_TRY(waiter.pause());'),
    ('a reader takes any number for the one that it waits for', 'fused, 2 ranks: each', 'fused.cpp',
     '''    while (theirs.number.load(std::memory_order_acquire) != number_)
        FLX_TRY(waiter.pause());''',
     'while (theirs.number.load(std::memory_order_acquire) == 0) FLX_TRY(waiter.pause()); return {};'),
    ('a reader says that it has read without a release', 'fused, 2 ranks: each', 'fused.cpp',
     'done(rank_).number.store(number_, std::memory_order_release);',
     'done(rank_).number.store(number_, std::memory_order_relaxed);'),
    ('a sender looks at what readers have read without an acquire', 'fused, 2 ranks: each', 'fused.cpp',
     '''        for (; ended < needed; ended = done(rank).number.load(std::memory_order_acquire))
            FLX_TRY(waiter.pause());''',
     '''ended = done(rank).number.load(std::memory_order_relaxed);
        for (; ended < needed; ended = done(rank).number.load(std::memory_order_relaxed))
            FLX_TRY(waiter.pause());'''),
    ('a reader says one operation more than it has read', 'fused, 2 ranks: each', 'fused.cpp',
     'done(rank_).number.store(number_, std::memory_order_release);',
     'done(rank_).number.store(number_ + 1, std::memory_order_release);'),
    ('a reader of a bcast says that it has read before it reads', 'fused, 2 ranks: each', 'fused.cpp',
     '''        if (bytes != 0)
            std::memcpy(buffer, shown(root, bytes), bytes);
        fetch_ahead(root, bytes);''',
     'end(false); if (bytes != 0) std::memcpy(buffer, shown(root, bytes), bytes); fetch_ahead(root, bytes);'),
    ('a place is used again one operation early, by what is known', 'fused, 2 ranks: each', 'fused.cpp',
     '''    if (read_through_ >= needed)
        return {};''',
     'if (read_through_ + 1 >= needed) return {};'),
    ('a place is used again one operation early, by what readers say', 'fused, 2 ranks: each', 'fused.cpp',
     '''        for (; ended < needed; ended = done(rank).number.load(std::memory_order_acquire))
            FLX_TRY(waiter.pause());''',
     '''for (; ended + 1 < needed; ended = done(rank).number.load(std::memory_order_acquire))
            FLX_TRY(waiter.pause());'''),
    ('what the last reader has read counts for all', 'fused, 3 ranks: each', 'fused.cpp',
     'least = std::min(least, ended);', 'least = ended;'),
    ('what lies in pages is not remembered', 'fused, 2 ranks: two calls', 'fused.cpp',
     'shown_page_[number_ % kPayloads] = number_;', ''),
    ('of what lies in the ring only the first page is remembered', 'fused, 2 ranks: two calls', 'fused.cpp',
     'std::ranges::fill(shown_in_ring(), number_);', 'shown_in_ring()[0] = number_;'),
    ('who gives to a reduce believes that all have come', 'fused, 2 ranks: two calls', 'fused.cpp',
     '''    if (rank_ != root) {
        show(in, signature);
        prepare_later(bytes);
        end(false);
        return {};
    }
    FLX_TRY(await_all(signature, waiter));''',
     '''if (rank_ != root) {
        show(in, signature);
        prepare_later(bytes);
        end(true);
        return {};
    }
    FLX_TRY(await_all(signature, waiter));'''),
    ('readers of short inputs say too seldom what they have read', 'fused, 2 ranks: each', 'fused.cpp',
     'ring_ = ring_of(longest_bytes);', 'ring_ = 8 * ring_of(longest_bytes);'),
    ("a reader looks for another's input where the longest would lie", 'fused, 2 ranks: each', 'fused.cpp',
     'std::memcpy(place(rank), shown(rank, counts[rank] * element), counts[rank] * element);',
     'std::memcpy(place(rank), shown(rank, longest), counts[rank] * element);'),
    ('a rank does not wait for the last one', 'fused, 3 ranks: each', 'fused.cpp',
     '''    for (int step = 1; step < ranks_; ++step)
        FLX_TRY(await((rank_ + step) % ranks_, signature, waiter));''',
     '''for (int step = 1; step < ranks_ - 1; ++step)
        FLX_TRY(await((rank_ + step) % ranks_, signature, waiter));'''),
    ('a message is there before its header', 'channel, 2 ranks: three', 'channel.cpp',
     '''    slot.header = header;
    slot.filled.store(++peer.sent, std::memory_order_release);''',
     'slot.filled.store(++peer.sent, std::memory_order_release); slot.header = header;'),
    ('a slot is filled without a release', 'channel, 2 ranks: three', 'channel.cpp',
     '''    ++peer.slots_sent;
    slot->filled.store(++peer.sent, std::memory_order_release);''',
     '++peer.slots_sent; slot->filled.store(++peer.sent, std::memory_order_relaxed);'),
    ('a slot is freed without a release', 'channel, 2 ranks: three', 'channel.cpp',
     'slot->freed.store(arrival.token, std::memory_order_release);',
     'slot->freed.store(arrival.token, std::memory_order_relaxed);'),
    ('a sender goes round the short slots one message early', 'channel, 2 ranks: five', 'channel.cpp',
     '''        if (out.sent - out.freed == shape_.shorts)
            return SendResult::busy;''',
     'if (out.sent - out.freed == shape_.shorts + 1) return SendResult::busy;'),
    ('short slots that are released out of turn count as those before', 'channel, 2 ranks: five', 'channel.cpp',
     '''    if (number != in.freed) {
        in.later |= bit(number);
        return;
    }''',
     'in.freed = std::max(in.freed, number);'),
    ('short and long messages are counted apart', 'channel, 2 ranks: three', 'channel.cpp',
     '''    ++peer.received;
    arrival.token = ++peer.slots_received;''',
     'arrival.token = ++peer.slots_received;'),
    ('a sender looks at what was freed without an acquire', 'channel, 2 ranks: three', 'channel.cpp',
     '''        if (exposed.slot->freed.load(std::memory_order_acquire) < exposed.number)
            continue;''',
     'if (exposed.slot->freed.load(std::memory_order_relaxed) < exposed.number) continue;'),
    ('a counter of blocks is looked at without an acquire', 'stream, 2 ranks: one', 'stream.cpp',
     'if ((counters(rank).*counter).load(std::memory_order_acquire) < number) {\n            waiting_for_ = rank;\n            return false;\n        }',
     'if ((counters(rank).*counter).load(std::memory_order_relaxed) < number) return false;'),
    ('a rank is two blocks too far ahead', 'stream, 2 ranks: one way', 'stream.cpp',
     'return reached(&Counters::reduced, done) && reached(&Counters::fetched, done);',
     'return reached(&Counters::reduced, less(done, 2)) && reached(&Counters::fetched, less(done, 2));'),
    ('a block is staged after it was counted', 'stream, 2 ranks: one', 'stream.cpp',
     '''            stage(course, next_stage++);
            publish(mine.staged, base_ + next_stage);''',
     'publish(mine.staged, base_ + next_stage + 1); stage(course, next_stage++);'),
    ('a call that goes another round does not wait for those before', 'stream, 2 ranks: pairs, other rounds', 'stream.cpp',
     'all_read_ = base_;', ''),
    ('a rank writes its sum to others beside its own region', 'mapped, 2 ranks', 'mapped.cpp',
     'copy_bytes(buffers[(rank_ + step) % ranks_].out + offset, sum, count * call.operation.element(), stream);',
     'copy_bytes(buffers[(rank_ + step) % ranks_].out + offset, sum, count * call.operation.element() + 1, stream);'),
    ("a bcast's root writes all of it to those who read a part themselves", 'mapped, 2 ranks', 'mapped.cpp',
     'copies_.add({buffers[rank].out + read, from + read, bytes - read, rank, rank_});',
     'copies_.add({buffers[rank].out, from, bytes, rank, rank_});'),
]
