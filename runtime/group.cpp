/// The communicator's exchanges: alltoall, alltoallv, send and receive, alone or several together in a group.
#include <cstring>

#include "communicator.h"
#include "dtype.h"
#include "telemetry.h"

namespace flx {

using algorithms::Collective;

Status Communicator::begin_group() {
    FLX_TRY(usable());
    if (group_open_)
        return fail(FLX_ERR_ARGUMENT, "flx_group_begin in a group: groups do not nest");
    group_open_ = true;
    return {};
}

Status Communicator::end_group() {
    if (!group_open_)
        return fail(FLX_ERR_ARGUMENT, "flx_group_end without flx_group_begin");
    group_open_ = false;
    return carry_exchange();
}

/// Memory for what is exchanged in place; valid until the exchange has ended.
std::byte *Communicator::aside(size_t bytes) {
    if (asides_used_ == asides_.size())
        asides_.emplace_back();
    std::vector<std::byte> &memory = asides_[asides_used_++];
    if (memory.size() < bytes) {
        Telemetry::count(telemetry().allocations);
        memory.resize(bytes);
    }
    return memory.data();
}

Status Communicator::alltoall(const void *in, void *out, size_t block, flx_dtype_t dtype) {
    FLX_TRY(usable());
    Operation operation;
    operation.collective = Collective::alltoall;
    operation.in = in;
    operation.out = out;
    operation.count = block * size_;
    operation.dtype = dtype;
    // In a group it is carried together with the rest; otherwise ranks that share memory have shorter ways.
    const Way way = choose(Collective::alltoall, operation.count * size_of(dtype)).way;
    if (!group_open_ && way != Way::exchanged) {
        const size_t total = operation.count * size_of(dtype);
        if (way == Way::fetched && in == out) {
            std::byte *copied = aside(total);
            std::memcpy(copied, in, total);
            operation.in = copied;
            asides_used_ = 0;
        }
        return run(operation);
    }
    if (!group_open_ && check_ && size_ > 1)
        FLX_TRY(compare_calls(operation));
    const size_t bytes = block * size_of(dtype);
    const auto *from = static_cast<const std::byte *>(in);
    auto *to = static_cast<std::byte *>(out);
    if (from == to && size_ > 1) {
        std::byte *copied = aside(bytes * size_);
        std::memcpy(copied, from, bytes * size_);
        from = copied;
    }
    exchanged_.collective = Collective::alltoall;
    exchanged_.sequence = ++sequence_;
    for (int step = 0; step < size_; ++step) {
        const int next = (rank_ + step) % size_;
        const int previous = (rank_ + size_ - step) % size_;
        if (step == 0) {
            if (in != out && bytes != 0)
                exchange_->copy(from + rank_ * bytes, to + rank_ * bytes, bytes);
            continue;
        }
        exchange_->send(next, from + next * bytes, bytes, sequence_);
        exchange_->receive(previous, to + previous * bytes, bytes, sequence_);
    }
    return group_open_ ? Status() : carry_exchange();
}

Status Communicator::alltoallv(const UnevenCall &call) {
    FLX_TRY(usable());
    if (!group_open_ && check_ && size_ > 1) {
        Operation operation;  // counts are each pair's own
        operation.collective = Collective::alltoallv;
        operation.dtype = call.dtype;
        FLX_TRY(compare_calls(operation));
    }
    const size_t element = size_of(call.dtype);
    const auto *in = static_cast<const std::byte *>(call.in);
    auto *out = static_cast<std::byte *>(call.out);
    exchanged_.collective = Collective::alltoallv;
    exchanged_.sequence = ++sequence_;
    std::byte *copied = nullptr;
    if (call.in_place && size_ > 1) {
        size_t total = 0;
        for (int peer = 0; peer < size_; ++peer)
            total += peer == rank_ ? 0 : call.recvcounts[peer] * element;
        copied = aside(total);
    }
    for (int step = 0; step < size_; ++step) {
        const int next = (rank_ + step) % size_;
        const int previous = (rank_ + size_ - step) % size_;
        if (step == 0) {
            const size_t bytes = call.recvcounts[rank_] * element;
            if (!call.in_place && bytes != 0)
                exchange_->copy(in + call.sdispls[rank_] * element, out + call.rdispls[rank_] * element, bytes);
            continue;
        }
        if (call.in_place) {
            const size_t bytes = call.recvcounts[next] * element;
            if (bytes != 0)
                std::memcpy(copied, out + call.rdispls[next] * element, bytes);
            exchange_->send(next, copied, bytes, sequence_);
            copied += bytes;
        } else {
            exchange_->send(next, in + call.sdispls[next] * element, call.sendcounts[next] * element, sequence_);
        }
        exchange_->receive(previous, out + call.rdispls[previous] * element, call.recvcounts[previous] * element,
                           sequence_);
    }
    return group_open_ ? Status() : carry_exchange();
}

Status Communicator::send(const void *data, size_t bytes, int peer) {
    FLX_TRY(usable());
    if (peer == rank_ && !group_open_)
        return fail(FLX_ERR_ARGUMENT,
                    "rank {} sends to itself; only in a group, or by flx_sendrecv, can it receive at the same time",
                    rank_);
    exchange_->send(peer, data, bytes, 0);
    return group_open_ ? Status() : carry_exchange();
}

Status Communicator::receive(void *data, size_t bytes, int peer) {
    FLX_TRY(usable());
    if (peer == rank_ && !group_open_)
        return fail(FLX_ERR_ARGUMENT,
                    "rank {} receives from itself; only in a group, or by flx_sendrecv, can it send at the same time",
                    rank_);
    exchange_->receive(peer, data, bytes, 0);
    return group_open_ ? Status() : carry_exchange();
}

Status Communicator::send_receive(const void *out, size_t out_bytes, int dest, void *in, size_t in_bytes, int source) {
    FLX_TRY(usable());
    exchange_->send(dest, out, out_bytes, 0);
    exchange_->receive(source, in, in_bytes, 0);
    return group_open_ ? Status() : carry_exchange();
}

/// Carries what was gathered in exchange_, and forgets it.
Status Communicator::carry_exchange() {
    struct Forget {
        Communicator &comm;
        ~Forget() {
            comm.exchange_->clear();
            comm.exchanged_ = Operation();
            comm.asides_used_ = 0;
        }
    };
    exchanged_.in = exchanged_.out = nullptr;
    if (exchanged_.sequence == 0)
        exchanged_.collective = Collective::send_recv;
    const Forget forget{*this};
    FLX_TRY(usable());
    FLX_TRY(exchange_->start());
    Telemetry::count(telemetry().operations);
    if (size_ == 1) {
        for (uint32_t step = 0; step < exchange_->steps().size(); ++step) {
            const Exchange::Message &message = exchange_->message(step);
            std::memcpy(message.to, message.from, message.bytes);
        }
        return {};
    }
    if (exchange_->steps().empty())
        return {};
    return carry_out(exchanged_, {Way::exchanged, nullptr});
}

}  // namespace flx
