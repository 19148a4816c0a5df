#include "runtime/cuda/kernels/team.cuh"
#include "runtime/cuda/protocol/mailbox.h"

namespace flx::cuda {
namespace {

/// A block as a Machine of runtime/cuda/protocol/mailbox.h.
template <class AnyMail>
class Postman {
  public:
    using Flag = MailboxLayout::Flag;
    __device__ explicit Postman(const AnyMail &mail) : mail_(mail), team_(mail.job) {}

    __device__ bool alive() const { return team_.alive(); }
    __device__ uint32_t count(Flag which, int peer, uint32_t lane) const { return *number(own(), which, peer, lane); }
    __device__ void set_count(Flag which, int peer, uint32_t lane, uint32_t value) {
        __syncthreads();
        if (threadIdx.x == 0)
            *number(own(), which, peer, lane) = value;
    }
    __device__ bool wait(Flag which, int peer, uint32_t lane, uint32_t count) {
        bool gave_up = false;
        if (threadIdx.x == 0) {
            Patience patience(mail_.job);
            const uint32_t *flag = number(own(), which, peer, lane);
            while (static_cast<int32_t>(load_acquire(flag) - count) < 0 && !gave_up)
                gave_up = !patience.more(peer);
        }
        return __syncthreads_or(gave_up ? 1 : 0) == 0;
    }
    __device__ void tell(Flag which, int peer, uint32_t lane, uint32_t count) {
        __syncthreads();
        if (threadIdx.x == 0)
            store_release(number(mail_.job.windows[peer], which, mail_.job.rank, lane), count);
    }
    __device__ void label(int peer, uint64_t slot, uint64_t bytes) {
        if (threadIdx.x == 0)
            *reinterpret_cast<volatile uint64_t *>(mail_.job.windows[peer] + slot) = bytes;
    }
    __device__ uint64_t label_of(uint64_t slot) const {
        return *reinterpret_cast<const volatile uint64_t *>(own() + slot);
    }
    __device__ void refuse(const Message &message, uint64_t bytes) const {
        if (threadIdx.x == 0) {
            auto *refused = static_cast<volatile uint64_t *>(mail_.refused);
            refused[1] = bytes;
            refused[2] = message.bytes;
            __threadfence_system();
            refused[0] = 1 + static_cast<uint64_t>(message.peer);
        }
    }
    __device__ void offer(int peer, uint32_t lane, const MemoryForMessage &mine, uint32_t count) {
        if (threadIdx.x == 0) {
            char *theirs = mail_.job.windows[peer];
            *reinterpret_cast<MemoryForMessage *>(theirs + MailboxLayout::offer(mail_.job.rank, lane)) = mine;
            store_release(number(theirs, Flag::offered, mail_.job.rank, lane), count);
        }
    }
    /// After a wait, so that no thread still looks at what was found before.
    __device__ MemoryForMessage offered(int peer, uint32_t lane, uint32_t count) const {
        __shared__ char *memory;
        __shared__ uint64_t bytes;
        if (threadIdx.x == 0) {
            const bool there = load_acquire(number(own(), Flag::offered, peer, lane)) == count;
            const auto *theirs = reinterpret_cast<const volatile uint64_t *>(own() + MailboxLayout::offer(peer, lane));
            memory = there ? reinterpret_cast<char *>(theirs[0]) : nullptr;
            bytes = there ? theirs[1] : 0;
        }
        __syncthreads();
        return {memory, bytes};
    }
    __device__ void copy(const char *from, const Targets &to, uint64_t bytes) { team_.copy(from, to, bytes); }

  private:
    [[nodiscard]] __device__ char *own() const { return mail_.job.windows[mail_.job.rank]; }
    static __device__ uint32_t *number(char *mailbox, Flag which, int peer, uint32_t lane) {
        return reinterpret_cast<uint32_t *>(mailbox + MailboxLayout::flag(which, peer, lane));
    }

    const AnyMail &mail_;
    Team<uint8_t, Keep> team_;
};

__global__ void __launch_bounds__(kThreads) few_mail_blocks(const __grid_constant__ FewMail mail) {
    Postman<FewMail> postman(mail);
    run_mail(postman, mail, blockIdx.x);
}

/// Two to a multiprocessor, so that all of them run at once.
template <class AnyMail>
__global__ void __launch_bounds__(kThreads, 2) mail_blocks(const __grid_constant__ AnyMail mail) {
    Postman<AnyMail> postman(mail);
    run_mail(postman, mail, blockIdx.x);
}

}  // namespace

const void *few_mail_kernel() {
    return reinterpret_cast<const void *>(&few_mail_blocks);
}

const void *mail_kernel() {
    return reinterpret_cast<const void *>(&mail_blocks<Mail>);
}

const void *many_mail_kernel() {
    return reinterpret_cast<const void *>(&mail_blocks<ManyMail>);
}

}  // namespace flx::cuda
