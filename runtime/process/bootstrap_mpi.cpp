#include "runtime/process/bootstrap_mpi.h"

#include <dlfcn.h>
#include <sched.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>

#include "runtime/base/open_pal.h"
#include "runtime/process/mpi_part.h"
#include "runtime/process/outside_waits.h"

namespace flx {
namespace {

constexpr const char *kLibrary = "libflx_with_mpi.so";

/// The folder that libflx is in, empty where that is not known. Found when it is loaded: its name may be relative to
/// the folder that the program was started in.
const std::filesystem::path &own_folder() {
    static const std::filesystem::path folder = [] {
        Dl_info self{};
        std::error_code error;
        if (dladdr(reinterpret_cast<const void *>(&make_mpi_bootstrap), &self) == 0)
            return std::filesystem::path();
        return std::filesystem::canonical(self.dli_fname, error).parent_path();
    }();
    return folder;
}

[[gnu::constructor]] void find_own_folder() {
    (void)own_folder();
}

/// It is beside libflx in a build, and in the folder `flx` there where they are installed. Programs that have FLX in
/// them, such as tests, are in a folder beside.
void *open_library() {
    for (const char *folder : {".", "flx", "../lib"}) {
        std::error_code error;
        const std::filesystem::path file = own_folder() / folder / kLibrary;
        if (!own_folder().empty() && std::filesystem::exists(file, error))
            return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
}

struct Loaded {
    const MpiPart *part = nullptr;
    std::string why;
    Loaded() {
        if (void *library = open_library(); library != nullptr)
            part = static_cast<const MpiPart *>(dlsym(library, "flx_mpi_part"));
        if (part == nullptr)
            why = dlerror();
    }
};

/// Not before make_mpi_bootstrap has loaded it.
const MpiPart *mpi = nullptr;

/// Called once. Fault::mpi_part where it is not found, or its MPI is not.
Status load() {
    const Loaded loaded;
    if (loaded.part == nullptr)
        return fail(Fault::mpi_part,
                    "FLX's part for MPI, {}, cannot be loaded: {}; it is installed with libflx and needs the MPI that "
                    "FLX was built with",
                    kLibrary, loaded.why);
    if (loaded.part->version != MpiPart::kVersion || loaded.part->size != sizeof(MpiPart))
        return fail(Fault::mpi_part,
                    "FLX's part for MPI, {}, belongs to another build of FLX than the libflx that is loaded, which is "
                    "version {}.{}.{}; install both together",
                    kLibrary, FLX_VERSION_MAJOR, FLX_VERSION_MINOR, FLX_VERSION_PATCH);
    mpi = loaded.part;
    return {};
}

/// As long as there is one of these, MPI reports when this process waits in it: Open MPI calls a function that is
/// registered so at each turn of its waits, in whichever thread. With another MPI it does nothing.
class TurnsOfMpi {
  public:
    TurnsOfMpi() {
        const std::lock_guard lock(mutex());
        if (users()++ == 0)
            call("opal_progress_register");
    }
    ~TurnsOfMpi() {
        const std::lock_guard lock(mutex());
        int finalized = 0;
        mpi->finalized(&finalized);
        if (--users() == 0 && !finalized)
            call("opal_progress_unregister");
    }
    TurnsOfMpi(const TurnsOfMpi &) = delete;
    TurnsOfMpi &operator=(const TurnsOfMpi &) = delete;

    /// FLX looks at MPI from within a wait of its own, which is no turn of a wait in MPI.
    static void look(MPI_Comm comm) {
        static const auto progress = reinterpret_cast<void (*)()>(open_pal("opal_progress"));
        looks_ = true;
        if (progress != nullptr) {
            progress();
        } else {  // which looks for a message first: that takes longer
            int flag = 0;
            mpi->iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
        }
        looks_ = false;
    }

  private:
    static void call(const char *name) {
        if (const auto function = reinterpret_cast<int (*)(int (*)())>(open_pal(name)); function != nullptr)
            function(note);
    }
    static std::mutex &mutex() {
        static std::mutex mutex;
        return mutex;
    }
    static int &users() {
        static int users = 0;
        return users;
    }
    /// Noting takes about as long as a turn.
    static int note() {
        constexpr int kTurnsPerNote = 64;
        if (!looks_ && ++turns_ >= kTurnsPerNote) {
            turns_ = 0;
            OutsideWaits::of_process().note();
        }
        return 0;  // nothing that MPI waits for
    }

    static thread_local bool looks_;
    static thread_local int turns_;
};

thread_local bool TurnsOfMpi::looks_ = false;
thread_local int TurnsOfMpi::turns_ = 0;

Status check(int code, const char *call) {
    if (code == MPI_SUCCESS)
        return {};
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    mpi->error_string(code, text, &length);
    return fail(Fault::mpi_refused, "{} failed: {}", call, std::string_view(text, length));
}

Status meet_on(MPI_Comm comm, const std::function<Status()> &meanwhile) {
    MPI_Request request = mpi->no_request;
    FLX_TRY(check(mpi->ibarrier(comm, &request), "MPI_Ibarrier"));
    int met = 0;
    while (true) {
        FLX_TRY(check(mpi->test(&request, &met, MPI_STATUS_IGNORE), "MPI_Test"));
        if (met)
            return {};
        FLX_TRY(meanwhile());
        sched_yield();
    }
}

class MpiBootstrap final : public Bootstrap {
  public:
    /// Takes `comm` over.
    explicit MpiBootstrap(MPI_Comm comm) : comm_(comm) {
        mpi->comm_set_errhandler(comm_, mpi->errors_return);
        mpi->comm_rank(comm_, &rank_);
        mpi->comm_size(comm_, &size_);
    }
    ~MpiBootstrap() override {
        int finalized = 0;
        mpi->finalized(&finalized);
        if (!finalized && !left_)  // the barrier that it left is still under way
            mpi->comm_free(&comm_);
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }

    Status allgather(const void *mine, size_t bytes, void *all) override {
        if (bytes > INT_MAX)
            return fail(Fault::mpi_refused,
                        "ranks would exchange {} bytes each while the communicator is made, and MPI takes {}", bytes,
                        INT_MAX);
        const int count = static_cast<int>(bytes);
        return check(mpi->allgather(mine, count, mpi->byte, all, count, mpi->byte, comm_), "MPI_Allgather");
    }
    Status barrier() override { return check(mpi->barrier(comm_), "MPI_Barrier"); }
    Status meet(const std::function<Status()> &meanwhile) override {
        Status status = meet_on(comm_, meanwhile);
        left_ = left_ || !status.ok();
        return status;
    }
    void progress() override { TurnsOfMpi::look(comm_); }
    [[nodiscard]] int ranks_on_host() const override {
        for (const char *name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
            if (const char *text = std::getenv(name); text != nullptr)
                return static_cast<int>(std::strtol(text, nullptr, 10));
        return 0;
    }
    [[nodiscard]] int ranks_of_program() const override {
        int ranks = 0;
        mpi->comm_size(mpi->world, &ranks);
        return ranks;
    }
    Status split(int color, int key, std::unique_ptr<Bootstrap> &result) override {
        MPI_Comm comm = mpi->no_comm;
        FLX_TRY(check(mpi->comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &comm), "MPI_Comm_split"));
        result = comm == mpi->no_comm ? nullptr : std::make_unique<MpiBootstrap>(comm);
        return {};
    }
    Status dup(std::unique_ptr<Bootstrap> &result) override {
        MPI_Comm comm = mpi->no_comm;
        FLX_TRY(check(mpi->comm_dup(comm_, &comm), "MPI_Comm_dup"));
        result = std::make_unique<MpiBootstrap>(comm);
        return {};
    }

  private:
    MPI_Comm comm_;
    int rank_ = 0;
    int size_ = 1;
    bool left_ = false;  ///< a meeting
    TurnsOfMpi turns_;
};

}  // namespace

Status make_mpi_bootstrap(MPI_Comm comm, const std::function<Status()> &meanwhile, std::unique_ptr<Bootstrap> &result) {
    static const Status loaded = load();
    FLX_TRY(Status(loaded));
    int initialized = 0;
    int finalized = 0;
    mpi->initialized(&initialized);
    mpi->finalized(&finalized);
    if (!initialized || finalized)
        return fail(Fault::mpi_not_running, "MPI is {}; communicators are made between MPI_Init and MPI_Finalize",
                    finalized ? "finalized" : "not initialized");
    if (comm == mpi->no_comm)
        return fail(Fault::wrong_mpi_comm, "mpi_comm is MPI_COMM_NULL; an intracommunicator is needed");
    int inter = 0;
    FLX_TRY(check(mpi->comm_test_inter(comm, &inter), "MPI_Comm_test_inter"));
    if (inter)
        return fail(Fault::wrong_mpi_comm, "mpi_comm is an intercommunicator; an intracommunicator is needed");
    FLX_TRY(meet_on(comm, meanwhile));
    MPI_Comm dup = mpi->no_comm;
    // Not MPI_Comm_dup, which would run the program's functions that copy attributes.
    FLX_TRY(check(mpi->comm_split(comm, 0, 0, &dup), "MPI_Comm_split"));
    result = std::make_unique<MpiBootstrap>(dup);
    return {};
}

bool mpi_allows_threads() {
    int level = MPI_THREAD_SINGLE;
    mpi->query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
}

}  // namespace flx
