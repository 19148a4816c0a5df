/// Messages between GPUs, run by host threads: one for each block of each rank, with the very code of the kernel.
#include "runtime/cuda/protocol/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cuda/protocol/own_messages.h"

namespace flx::cuda {
namespace {

using Flag = MailboxLayout::Flag;

constexpr uint32_t kBlocks = 8;

/// Bytes that all ranks sent through slots.
std::atomic<uint64_t> through_slots{0};

/// As a block of a kernel, in ordinary memory.
class HostPostman {
  public:
    HostPostman(const Mail &mail, const std::atomic<bool> &abort) : mail_(mail), abort_(abort) {}

    bool alive() const { return mail_.job.dead == nullptr || *mail_.job.dead == 0; }
    uint32_t count(Flag which, int peer, uint32_t lane) const { return *number(mail_.job.rank, which, peer, lane); }
    void set_count(Flag which, int peer, uint32_t lane, uint32_t value) {
        *number(mail_.job.rank, which, peer, lane) = value;
    }
    bool wait(Flag which, int peer, uint32_t lane, uint32_t count) {
        const std::atomic_ref<uint32_t> flag(*number(mail_.job.rank, which, peer, lane));
        while (static_cast<int32_t>(flag.load(std::memory_order_acquire) - count) < 0) {
            if (abort_.load(std::memory_order_relaxed)) {
                if (mail_.job.dead != nullptr)
                    *mail_.job.dead = 1;
                return false;
            }
            std::this_thread::yield();
        }
        return true;
    }
    void tell(Flag which, int peer, uint32_t lane, uint32_t count) {
        std::atomic_ref<uint32_t>(*number(peer, which, mail_.job.rank, lane)).store(count, std::memory_order_release);
    }
    void label(int peer, uint64_t slot, uint64_t bytes) {
        std::memcpy(mail_.job.windows[peer] + slot, &bytes, sizeof bytes);
    }
    uint64_t label_of(uint64_t slot) const {
        uint64_t label = 0;
        std::memcpy(&label, mail_.job.windows[mail_.job.rank] + slot, sizeof label);
        return label;
    }
    void refuse(const Message &message, uint64_t bytes) const {
        if (mail_.refused == nullptr)
            return;
        // By several lanes at once.
        const uint64_t words[] = {1 + static_cast<uint64_t>(message.peer), bytes, message.bytes};
        for (size_t i = 0; i < std::size(words); ++i)
            std::atomic_ref<uint64_t>(mail_.refused[i]).store(words[i], std::memory_order_relaxed);
    }
    void offer(int peer, uint32_t lane, const MemoryForMessage &mine, uint32_t count) {
        std::memcpy(mail_.job.windows[peer] + MailboxLayout::offer(mail_.job.rank, lane), &mine, sizeof mine);
        tell(Flag::offered, peer, lane, count);
    }
    MemoryForMessage offered(int peer, uint32_t lane, uint32_t count) const {
        const std::atomic_ref<uint32_t> flag(*number(mail_.job.rank, Flag::offered, peer, lane));
        MemoryForMessage theirs;
        if (flag.load(std::memory_order_acquire) == count)
            std::memcpy(&theirs, mail_.job.windows[mail_.job.rank] + MailboxLayout::offer(peer, lane), sizeof theirs);
        return theirs;
    }
    void copy(const char *from, const Targets &to, uint64_t bytes) {
        if (to.local != nullptr)
            std::memcpy(to.local, from, bytes);
        if (to.peers != 0)
            through_slots += bytes;
        for (int peer = 0; peer < mail_.job.ranks; ++peer)
            if ((to.peers >> peer & 1) != 0)
                std::memcpy(to.bases[peer] + to.offset, from, bytes);
    }

  private:
    [[nodiscard]] uint32_t *number(int rank, Flag which, int peer, uint32_t lane) const {
        return reinterpret_cast<uint32_t *>(mail_.job.windows[rank] + MailboxLayout::flag(which, peer, lane));
    }

    const Mail &mail_;
    const std::atomic<bool> &abort_;
};

struct Mailboxes {
    Mailboxes(int ranks, uint64_t budget) : layout(mailbox_for(budget, kBlocks, ranks)) {
        for (int rank = 0; rank < ranks; ++rank)
            memory.emplace_back(layout.bytes() / sizeof(uint64_t) + 1);
    }
    Mail mail_for(int rank) {
        Mail mail;
        mail.layout = layout;
        mail.job.rank = rank;
        mail.job.ranks = static_cast<int>(memory.size());
        for (size_t peer = 0; peer < memory.size(); ++peer)
            mail.job.windows[peer] = reinterpret_cast<char *>(memory[peer].data());
        return mail;
    }
    MailboxLayout layout;
    std::vector<std::vector<uint64_t>> memory;
};

void carry(const Mail &mail, const std::atomic<bool> &abort) {
    std::vector<std::thread> blocks;
    for (uint32_t block = 0; block < mail.ways * mail.lanes; ++block)
        blocks.emplace_back([&, block] {
            HostPostman postman(mail, abort);
            run_mail(postman, mail, block);
        });
    for (std::thread &block : blocks)
        block.join();
}

/// Returns when rank 1 has offered what it is to get first of all, in every lane.
void await_offers(const Mail &mail, const std::atomic<bool> &abort) {
    const HostPostman postman(mail, abort);
    for (uint32_t lane = 0; lane < mail.layout.lanes; ++lane)
        while (postman.offered(1, lane, 1).memory == nullptr)
            std::this_thread::yield();
}

/// A message of the test, with its bytes at both ends.
struct Letter {
    int from = 0;
    int to = 0;
    std::vector<char> sent;
    std::vector<char> received;
    bool open = false;  ///< the receiver's memory is, to the sender
};

/// Calls one after the other, each with letters of its own; ranks go on at their own pace.
void deliver(int ranks, uint64_t budget, std::vector<std::vector<Letter>> &calls) {
    Mailboxes boxes(ranks, budget);
    const std::atomic<bool> abort{false};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            for (std::vector<Letter> &call : calls) {
                Mail mail = boxes.mail_for(rank);
                for (Letter &letter : call) {
                    const bool out = letter.from == rank;
                    std::vector<char> &bytes = out ? letter.sent : letter.received;
                    if (!out && letter.to != rank)
                        continue;
                    char *there = letter.open && !out ? bytes.data() : nullptr;
                    EXPECT_TRUE(mail.add({bytes.data(), bytes.size(), out ? letter.to : letter.from, out}, there));
                }
                carry(mail, abort);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (size_t call = 0; call < calls.size(); ++call)
        for (const Letter &letter : calls[call])
            EXPECT_TRUE(letter.sent == letter.received)
                << letter.sent.size() << " bytes from " << letter.from << " to " << letter.to << " in call " << call;
}

Letter letter(int from, int to, size_t bytes, unsigned seed) {
    Letter made{from, to, std::vector<char>(bytes), std::vector<char>(bytes, 'x')};
    for (size_t i = 0; i < bytes; ++i)
        made.sent[i] = static_cast<char>(i * 31 + i / 251 * 7 + seed * 13);
    return made;
}

/// A rank, and another one.
std::pair<int, int> any_two(std::mt19937 &random, int ranks) {
    const int from = static_cast<int>(random() % ranks);
    return {from, (from + 1 + static_cast<int>(random() % (ranks - 1))) % ranks};
}

constexpr uint64_t kSmall = 1 << 20;  // slots of a few KiB, so that they are used again and again

TEST(CudaMailbox, MessagesOfEverySizeArriveWhoeverElseTalks) {
    for (const int ranks : {2, 3}) {
        std::mt19937 random(static_cast<unsigned>(ranks));
        std::vector<std::vector<Letter>> calls(12);
        unsigned seed = 0;
        for (std::vector<Letter> &call : calls)
            for (const size_t bytes : {size_t{1}, size_t{15}, size_t{5'000}, size_t{200'001}}) {
                const auto [from, to] = any_two(random, ranks);
                call.push_back(letter(from, to, bytes + random() % 100, ++seed));
            }
        deliver(ranks, kSmall, calls);
    }
}

TEST(CudaMailbox, BothWaysAtOnceWithMoreThanTheSlotsHold) {
    std::vector<std::vector<Letter>> calls(2);
    for (std::vector<Letter> &call : calls)
        call = {letter(0, 1, 1'500'000, 1), letter(1, 0, 1'500'000, 2), letter(0, 1, 700'001, 3)};
    deliver(2, kSmall, calls);
}

/// Of other sizes, of others' memory and of the same sizes again, so that an offer could be taken for a later one.
TEST(CudaMailbox, LongMessagesGoStraightIntoMemoryThatIsOpen) {
    for (const int ranks : {2, 3}) {
        std::mt19937 random(static_cast<unsigned>(ranks));
        std::vector<std::vector<Letter>> calls(10);
        unsigned seed = 0;
        for (std::vector<Letter> &call : calls)
            for (const size_t bytes : {size_t{1'100'000}, size_t{3'000'001}, size_t{1'100'000}, size_t{900'000}}) {
                const auto [from, to] = any_two(random, ranks);
                call.push_back(letter(from, to, bytes, ++seed));
                call.back().open = random() % 4 != 0;
            }
        deliver(ranks, kSmall, calls);
    }
}

/// Unless its memory would take narrower stores than slots, which lie on lines as what is sent does.
TEST(CudaMailbox, AReceiverThatWaitsGetsAllOfALongMessageStraight) {
    constexpr size_t kBytes = 2'000'000;
    struct Given {
        bool open;
        size_t beside;
    };
    const std::atomic<bool> abort{false};
    for (const Given given : {Given{true, 0}, Given{false, 0}, Given{true, 1}}) {
        Mailboxes boxes(2, kSmall);
        const Letter sent = letter(0, 1, kBytes, 1);
        std::vector<char> received(kBytes + given.beside);
        char *memory = received.data() + given.beside;
        Mail receives = boxes.mail_for(1);
        ASSERT_TRUE(receives.add({memory, kBytes, 0, false}, given.open ? memory : nullptr));
        std::thread receiver([&] { carry(receives, abort); });
        std::vector<char> bytes = sent.sent;
        Mail sends = boxes.mail_for(0);
        ASSERT_TRUE(sends.add({bytes.data(), kBytes, 1, true}));
        if (given.open)
            await_offers(sends, abort);
        through_slots = 0;
        carry(sends, abort);
        receiver.join();
        EXPECT_EQ(std::memcmp(memory, bytes.data(), kBytes), 0);
        EXPECT_EQ(through_slots, given.open && given.beside == 0 ? 0U : kBytes);
    }
}

TEST(CudaMailbox, MemoryForAShorterMessageIsNotWrittenInto) {
    Mailboxes boxes(2, kSmall);
    std::atomic<bool> abort{false};
    Letter sent = letter(0, 1, 4'000'000, 1);
    sent.received.assign(4'000'000, 'x');
    uint64_t refused[3] = {};
    Mail receives = boxes.mail_for(1);
    receives.refused = refused;
    ASSERT_TRUE(receives.add({sent.received.data(), 2'000'000, 0, false}, sent.received.data()));
    Mail sends = boxes.mail_for(0);
    ASSERT_TRUE(sends.add({sent.sent.data(), sent.sent.size(), 1, true}));
    std::thread receiver([&] { carry(receives, abort); });
    await_offers(sends, abort);
    std::thread sender([&] { carry(sends, abort); });
    receiver.join();
    abort = true;
    sender.join();
    EXPECT_EQ(refused[0], 1U);
    EXPECT_EQ(refused[1], 4'000'000U);
    EXPECT_EQ(refused[2], 2'000'000U);
    EXPECT_EQ(sent.received, std::vector<char>(4'000'000, 'x'));
}

TEST(CudaMailbox, WhatFitsIntoSlotsIsSentBeforeItsReceiverComes) {
    Mailboxes boxes(2, kSmall);
    const std::atomic<bool> abort{false};
    std::vector<Letter> letters;
    for (unsigned turn = 0; turn < MailboxLayout::kSlots; ++turn) {
        letters.push_back(letter(0, 1, 700, turn));
        Mail mail = boxes.mail_for(0);
        ASSERT_TRUE(mail.add({letters[turn].sent.data(), 700, 1, true}));
        carry(mail, abort);
    }
    for (Letter &late : letters) {
        Mail mail = boxes.mail_for(1);
        ASSERT_TRUE(mail.add({late.received.data(), 700, 0, false}));
        carry(mail, abort);
        EXPECT_EQ(late.sent, late.received);
    }
}

TEST(CudaMailbox, AMessageOfAnotherSizeIsRefused) {
    Mailboxes boxes(2, kSmall);
    const std::atomic<bool> abort{false};
    Letter sent = letter(0, 1, 600, 1);
    Mail mail = boxes.mail_for(0);
    ASSERT_TRUE(mail.add({sent.sent.data(), 600, 1, true}));
    carry(mail, abort);
    uint64_t refused[3] = {};
    Mail other = boxes.mail_for(1);
    other.refused = refused;
    ASSERT_TRUE(other.add({sent.received.data(), 500, 0, false}));
    carry(other, abort);
    EXPECT_EQ(refused[0], 1U);
    EXPECT_EQ(refused[1], 600U);
    EXPECT_EQ(refused[2], 500U);
    EXPECT_EQ(sent.received[0], 'x');
}

TEST(CudaMailbox, AWaitEndsWhenItIsToldTo) {
    Mailboxes boxes(2, kSmall);
    std::atomic<bool> abort{false};
    std::vector<char> memory(100);
    Mail mail = boxes.mail_for(1);
    ASSERT_TRUE(mail.add({memory.data(), memory.size(), 0, false}));
    std::thread waits([&] { carry(mail, abort); });
    abort = true;
    waits.join();
}

/// It would be taken for the message that was given up.
TEST(CudaMailbox, WhatIsQueuedBehindAMessageThatWasGivenUpIsNotSent) {
    Mailboxes boxes(2, kSmall);
    const std::atomic<bool> abort{true};
    uint32_t dead = 0;
    std::vector<char> first(100);
    std::vector<char> second(100, 'b');
    Mail waits = boxes.mail_for(0);
    waits.job.dead = &dead;
    ASSERT_TRUE(waits.add({first.data(), first.size(), 1, false}));
    carry(waits, abort);
    Mail behind = boxes.mail_for(0);
    behind.job.dead = &dead;
    ASSERT_TRUE(behind.add({second.data(), second.size(), 1, true}));
    carry(behind, abort);
    Mail theirs = boxes.mail_for(1);
    ASSERT_TRUE(theirs.add({first.data(), first.size(), 0, false}));
    carry(theirs, abort);
    EXPECT_EQ(first, std::vector<char>(100));
}

TEST(CudaMailbox, NoMoreMessagesThanThereIsRoomFor) {
    Mailboxes boxes(2, kSmall);
    Mail mail = boxes.mail_for(0);
    char byte = 0;
    for (uint32_t i = 0; i < Mail::kMost; ++i)
        ASSERT_TRUE(mail.add({&byte, 1, 1, i % 2 == 0}));
    EXPECT_FALSE(mail.add({&byte, 1, 1, true}));
}

TEST(CudaMailbox, FitsIntoAnEighthOfItsBudget) {
    for (const int ranks : {2, 8})
        for (const uint64_t budget : {uint64_t{16} << 20, uint64_t{256} << 20})
            EXPECT_LE(mailbox_for(budget, 128, ranks).bytes(), budget / 8 + MailboxLayout::kHead);
}

TEST(CudaMailbox, AMessageThatASmallOneHoldsTakesAsLongInIt) {
    for (const int ranks : {2, 4, 8}) {
        const MailboxLayout full = mailbox_for(256 << 20, 32, ranks);
        const MailboxLayout small = small_mailbox(700 << 10, 32, ranks);
        EXPECT_LE(small.bytes(), 700U << 10);
        EXPECT_LE(small.lanes, full.lanes);
        EXPECT_TRUE(alike(full, small, 8));
        EXPECT_TRUE(alike(full, small, small.lanes * MailboxLayout::kLeastPiece));
        EXPECT_FALSE(alike(full, small, 16 << 20));
    }
}

TEST(CudaMailbox, AllBlocksRunAtOnce) {
    for (const uint32_t blocks : {1U, 32U, 128U})
        for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
            const uint32_t lanes = mailbox_for(256 << 20, blocks, ranks).lanes;
            EXPECT_TRUE(lanes == 1 || lanes * static_cast<uint32_t>(ranks - 1) <= blocks) << ranks;
        }
}

TEST(OwnMessages, MeetInOrderAndMustBeAlike) {
    char memory[4];
    std::vector<OwnMessage> own;
    const Message to_self{memory, 2, 1, true};
    const Message from_self{memory + 2, 2, 1, false};
    const Message other{memory, 4, 0, true};
    ASSERT_TRUE(own_messages(std::vector{from_self, other, to_self}, 1, own).ok());
    ASSERT_EQ(own.size(), 1U);
    EXPECT_EQ(own[0].from, memory);
    EXPECT_EQ(own[0].to, memory + 2);
    EXPECT_EQ(own_messages(std::vector{to_self}, 1, own).fault(), Fault::message_to_itself);
    EXPECT_EQ(own_messages(std::vector{from_self}, 1, own).fault(), Fault::message_to_itself);
    Message longer = from_self;
    longer.bytes = 1;
    EXPECT_EQ(own_messages(std::vector{to_self, longer}, 1, own).fault(), Fault::bytes_differ);
}

}  // namespace
}  // namespace flx::cuda
