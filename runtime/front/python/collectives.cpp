/// The collectives of a communicator. One function a collective makes FLX's arguments of Python's; blocking and
/// non-blocking forms follow from it.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/front/python/communicator.h"

namespace flx::python {
namespace {

using Counts = std::vector<size_t>;

/// Arguments of a call of FLX but for the communicator, and what they point into.
template <typename... Args>
struct Prepared {
    std::array<View, 2> views;  ///< what is sent, and what is received
    std::tuple<Args...> args;
    std::array<Counts, 4> counts{};
};

/// `object` may be None: `in_place`, where that is said of it; else memory that this rank has no need of.
View view_of(const py::object &object, const char *name, bool written, int dtype) {
    return object.is_none() ? View() : View(object, name, written, dtype);
}

void same_type(const View &send, const View &recv) {
    if (!send.empty() && !recv.empty() && send.dtype() != recv.dtype())
        refuse("send and recv have elements of different types");
}

void exactly(const View &view, const char *name, size_t count) {
    if (!view.empty() && view.count() != count)
        refuse(std::string(name) + " has " + std::to_string(view.count()) + " elements and has to have " +
               std::to_string(count));
}

void at_least(const View &view, const char *name, size_t count) {
    if (!view.empty() && view.count() < count)
        refuse(std::string(name) + " has " + std::to_string(view.count()) + " elements and has to have " +
               std::to_string(count) + " or more");
}

/// The block of one rank where a buffer has one for each.
size_t block_of(const View &view, const char *name, int size) {
    if (view.count() % static_cast<size_t>(size) != 0)
        refuse(std::string(name) + " has " + std::to_string(view.count()) + " elements, which are no " +
               std::to_string(size) + " blocks of one length");
    return view.count() / static_cast<size_t>(size);
}

flx_dtype_t type_of(const std::array<View, 2> &views) {
    return views[0].empty() ? views[1].dtype() : views[0].dtype();
}

const void *sent(const View &view) {
    return view.empty() ? FLX_IN_PLACE : view.data();
}

/// Where no address can be.
constexpr size_t kTooFar = std::numeric_limits<size_t>::max();

size_t sum(size_t one, size_t other) {
    return one > kTooFar - other ? kTooFar : one + other;
}

/// A number for each rank.
Counts counts_of(const py::object &object, const char *name, size_t size) {
    if (PySequence_Check(object.ptr()) == 0)
        refuse(std::string(name) + " is of type " + Py_TYPE(object.ptr())->tp_name + " and has to be a sequence of " +
               std::to_string(size) + " numbers");
    Counts counts;
    for (const py::handle item : object) {
        const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(item.ptr()));
        counts.push_back(number ? PyLong_AsSize_t(number.ptr()) : 0);
        if (PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            refuse(std::string(name) + " has " + py::repr(item).cast<std::string>() +
                   " and has to have whole numbers of elements, 0 or more");
        }
    }
    if (counts.size() != size)
        refuse(std::string(name) + " has " + std::to_string(counts.size()) + " numbers, and there are " +
               std::to_string(size) + " ranks");
    return counts;
}

size_t ranks_of(const Handle &handle) {
    return static_cast<size_t>(handle.size);
}

/// Where each rank's part begins: one after the other where that is not said.
Counts places_of(const py::object &places, const char *name, const Counts &counts) {
    if (!places.is_none())
        return counts_of(places, name, counts.size());
    Counts made(counts.size());
    for (size_t i = 1; i < counts.size(); ++i)
        made[i] = sum(made[i - 1], counts[i - 1]);
    return made;
}

size_t end_of(const Counts &counts, const Counts &places) {
    size_t end = 0;
    for (size_t i = 0; i < counts.size(); ++i)
        end = std::max(end, counts[i] == 0 ? 0 : sum(places[i], counts[i]));
    return end;
}

/// Truths stay 0 or 1: they are added as `or` and multiplied as `and`.
flx_op_t op_of(int op, const std::array<View, 2> &views) {
    if (!views[0].empty() && !views[1].empty() && views[0].truth() != views[1].truth())
        refuse("send and recv have elements of different types, of which one is bool");
    if (views[0].truth() || views[1].truth()) {
        if (op == FLX_AVG)
            refuse("elements are of type bool, which has no average");
        if (op == FLX_SUM || op == FLX_PROD)
            return op == FLX_SUM ? FLX_LOR : FLX_LAND;
    }
    return static_cast<flx_op_t>(op);
}

/// Input and output of one length: `recv` None is in place, in `send`.
std::array<View, 2> alike(const py::object &send, const py::object &recv, int dtype) {
    std::array<View, 2> views;
    if (recv.is_none()) {
        views[1] = View(send, "send", true, dtype);
    } else {
        views[0] = view_of(send, "send", false, dtype);
        views[1] = View(recv, "recv", true, dtype);
        same_type(views[0], views[1]);
        exactly(views[0], "send", views[1].count());
    }
    return views;
}

using Alike = Prepared<const void *, void *, size_t, flx_dtype_t, flx_op_t>;

Alike allreduce(const Handle &, const py::object &send, const py::object &recv, int op, int dtype) {
    auto views = alike(send, recv, dtype);
    std::tuple args{sent(views[0]), views[1].data(), views[1].count(), views[1].dtype(), op_of(op, views)};
    return {std::move(views), args};
}

Prepared<const void *, void *, size_t, flx_dtype_t, flx_op_t, int> reduce(const Handle &handle, const py::object &send,
                                                                          const py::object &recv, int op, int root,
                                                                          int dtype) {
    std::array<View, 2> views;
    const bool here = handle.rank == root;
    views[0] = view_of(send, "send", false, dtype);
    if (here && recv.is_none())
        views = alike(send, recv, dtype);
    else if (here)
        views[1] = View(recv, "recv", true, dtype);
    same_type(views[0], views[1]);
    if (here)
        exactly(views[0], "send", views[1].count());
    const size_t count = here ? views[1].count() : views[0].count();
    std::tuple args{sent(views[0]), views[1].data(), count, type_of(views), op_of(op, views), root};
    return {std::move(views), args};
}

Prepared<void *, size_t, flx_dtype_t, int> bcast(const Handle &handle, const py::object &buffer, int root, int dtype) {
    std::array<View, 2> views;
    views[1] = View(buffer, "buffer", handle.rank != root, dtype);
    std::tuple args{views[1].data(), views[1].count(), views[1].dtype(), root};
    return {std::move(views), args};
}

using Moved = Prepared<const void *, void *, size_t, flx_dtype_t>;

Moved allgather(const Handle &handle, const py::object &send, const py::object &recv, int dtype) {
    std::array views{view_of(send, "send", false, dtype), View(recv, "recv", true, dtype)};
    same_type(views[0], views[1]);
    const size_t count = block_of(views[1], "recv", handle.size);
    exactly(views[0], "send", count);
    std::tuple args{sent(views[0]), views[1].data(), count, views[1].dtype()};
    return {std::move(views), args};
}

Moved alltoall(const Handle &handle, const py::object &send, const py::object &recv, int dtype) {
    auto views = alike(send, recv, dtype);
    const size_t count = block_of(views[1], "recv", handle.size);
    std::tuple args{sent(views[0]), views[1].data(), count, views[1].dtype()};
    return {std::move(views), args};
}

using Rooted = Prepared<const void *, void *, size_t, flx_dtype_t, int>;

Rooted gather(const Handle &handle, const py::object &send, const py::object &recv, int root, int dtype) {
    std::array<View, 2> views;
    views[0] = view_of(send, "send", false, dtype);
    size_t count = views[0].count();
    if (handle.rank == root) {
        views[1] = View(recv, "recv", true, dtype);
        same_type(views[0], views[1]);
        count = block_of(views[1], "recv", handle.size);
        exactly(views[0], "send", count);
    }
    std::tuple args{sent(views[0]), views[1].data(), count, type_of(views), root};
    return {std::move(views), args};
}

Rooted scatter(const Handle &handle, const py::object &send, const py::object &recv, int root, int dtype) {
    std::array<View, 2> views;
    views[1] = view_of(recv, "recv", true, dtype);
    size_t count = views[1].count();
    if (handle.rank == root) {
        views[0] = View(send, "send", false, dtype);
        same_type(views[0], views[1]);
        count = block_of(views[0], "send", handle.size);
        exactly(views[1], "recv", count);
    }
    void *const received = views[1].empty() ? FLX_IN_PLACE : views[1].data();
    std::tuple args{static_cast<const void *>(views[0].data()), received, count, type_of(views), root};
    return {std::move(views), args};
}

Prepared<const void *, void *, size_t, flx_dtype_t, flx_op_t> reduce_scatter_block(const Handle &handle,
                                                                                   const py::object &send,
                                                                                   const py::object &recv, int op,
                                                                                   int dtype) {
    std::array<View, 2> views;
    size_t count = 0;
    if (recv.is_none()) {
        views[1] = View(send, "send", true, dtype);
        count = block_of(views[1], "send", handle.size);
    } else {
        views = {View(send, "send", false, dtype), View(recv, "recv", true, dtype)};
        same_type(views[0], views[1]);
        count = block_of(views[0], "send", handle.size);
        exactly(views[1], "recv", count);
    }
    std::tuple args{sent(views[0]), views[1].data(), count, views[1].dtype(), op_of(op, views)};
    return {std::move(views), args};
}

Prepared<const void *, void *, const size_t *, flx_dtype_t, flx_op_t> reduce_scatter(const Handle &handle,
                                                                                     const py::object &send,
                                                                                     const py::object &recv,
                                                                                     const py::object &recvcounts,
                                                                                     int op, int dtype) {
    Counts counts = counts_of(recvcounts, "recvcounts", ranks_of(handle));
    size_t all = 0;
    for (const size_t count : counts)
        all = sum(all, count);
    std::array<View, 2> views;
    if (recv.is_none()) {
        views[1] = View(send, "send", true, dtype);
        exactly(views[1], "send", all);
    } else {
        views = {View(send, "send", false, dtype), View(recv, "recv", true, dtype)};
        same_type(views[0], views[1]);
        exactly(views[0], "send", all);
        exactly(views[1], "recv", counts[static_cast<size_t>(handle.rank)]);
    }
    std::tuple args{sent(views[0]), views[1].data(), static_cast<const size_t *>(counts.data()), views[1].dtype(),
                    op_of(op, views)};
    return {std::move(views), args, {std::move(counts)}};
}

Prepared<const void *, size_t, void *, const size_t *, const size_t *, flx_dtype_t> allgatherv(
    const Handle &handle, const py::object &send, const py::object &recv, const py::object &recvcounts,
    const py::object &displs, int dtype) {
    Counts counts = counts_of(recvcounts, "recvcounts", ranks_of(handle));
    Counts places = places_of(displs, "displs", counts);
    std::array views{view_of(send, "send", false, dtype), View(recv, "recv", true, dtype)};
    same_type(views[0], views[1]);
    exactly(views[0], "send", counts[static_cast<size_t>(handle.rank)]);
    at_least(views[1], "recv", end_of(counts, places));
    std::tuple args{sent(views[0]),
                    counts[static_cast<size_t>(handle.rank)],
                    views[1].data(),
                    static_cast<const size_t *>(counts.data()),
                    static_cast<const size_t *>(places.data()),
                    views[1].dtype()};
    return {std::move(views), args, {std::move(counts), std::move(places)}};
}

Prepared<const void *, size_t, void *, const size_t *, const size_t *, flx_dtype_t, int> gatherv(
    const Handle &handle, const py::object &send, const py::object &recv, const py::object &recvcounts,
    const py::object &displs, int root, int dtype) {
    std::array<View, 2> views;
    views[0] = view_of(send, "send", false, dtype);
    Counts counts;
    Counts places;
    if (handle.rank == root) {
        counts = counts_of(recvcounts, "recvcounts", ranks_of(handle));
        places = places_of(displs, "displs", counts);
        views[1] = View(recv, "recv", true, dtype);
        same_type(views[0], views[1]);
        exactly(views[0], "send", counts[static_cast<size_t>(handle.rank)]);
        at_least(views[1], "recv", end_of(counts, places));
    }
    std::tuple args{sent(views[0]),
                    views[0].count(),
                    views[1].data(),
                    static_cast<const size_t *>(counts.data()),
                    static_cast<const size_t *>(places.data()),
                    type_of(views),
                    root};
    return {std::move(views), args, {std::move(counts), std::move(places)}};
}

Prepared<const void *, const size_t *, const size_t *, void *, size_t, flx_dtype_t, int> scatterv(
    const Handle &handle, const py::object &send, const py::object &sendcounts, const py::object &recv,
    const py::object &displs, int root, int dtype) {
    std::array<View, 2> views;
    views[1] = view_of(recv, "recv", true, dtype);
    Counts counts;
    Counts places;
    if (handle.rank == root) {
        counts = counts_of(sendcounts, "sendcounts", ranks_of(handle));
        places = places_of(displs, "displs", counts);
        views[0] = View(send, "send", false, dtype);
        same_type(views[0], views[1]);
        at_least(views[0], "send", end_of(counts, places));
        exactly(views[1], "recv", counts[static_cast<size_t>(handle.rank)]);
    }
    void *const received = views[1].empty() ? FLX_IN_PLACE : views[1].data();
    std::tuple args{static_cast<const void *>(views[0].data()),
                    static_cast<const size_t *>(counts.data()),
                    static_cast<const size_t *>(places.data()),
                    received,
                    views[1].count(),
                    type_of(views),
                    root};
    return {std::move(views), args, {std::move(counts), std::move(places)}};
}

Prepared<const void *, void *, const size_t *, const size_t *, const size_t *, const size_t *, flx_dtype_t> alltoallv(
    const Handle &handle, const py::object &send, const py::object &sendcounts, const py::object &recv,
    const py::object &recvcounts, const py::object &sdispls, const py::object &rdispls, int dtype) {
    Counts sends = counts_of(sendcounts, "sendcounts", ranks_of(handle));
    Counts recvs = counts_of(recvcounts, "recvcounts", ranks_of(handle));
    Counts from = places_of(sdispls, "sdispls", sends);
    Counts to = places_of(rdispls, "rdispls", recvs);
    std::array views{View(send, "send", false, dtype), View(recv, "recv", true, dtype)};
    same_type(views[0], views[1]);
    at_least(views[0], "send", end_of(sends, from));
    at_least(views[1], "recv", end_of(recvs, to));
    std::tuple args{static_cast<const void *>(views[0].data()),
                    views[1].data(),
                    static_cast<const size_t *>(sends.data()),
                    static_cast<const size_t *>(from.data()),
                    static_cast<const size_t *>(recvs.data()),
                    static_cast<const size_t *>(to.data()),
                    views[1].dtype()};
    return {std::move(views), args, {std::move(sends), std::move(from), std::move(recvs), std::move(to)}};
}

Prepared<> barrier(const Handle &) {
    return {};
}

/// `name` and `iname` of FLX's two functions.
template <typename Blocking, typename Begin, typename Result, typename... In, typename... Extra>
void add(py::class_<Communicator> &communicator, const std::string &name, Blocking blocking, Begin begin,
         Result (*prepare)(const Handle &, In...), const Extra &...extra) {
    communicator.def(
        name.c_str(),
        [=](Communicator &self, In... in) {
            const auto call = prepare(self.handle(), in...);
            self.handle().run([&](flx_comm_t comm) {
                return std::apply([&](auto... args) { return blocking(args..., comm); }, call.args);
            });
        },
        extra...);
    communicator.def(("i" + name).c_str(),
                     [=](Communicator &self, In... in) {
                         auto call = prepare(self.handle(), in...);
                         flx_request_t request = FLX_REQUEST_NULL;
                         self.handle().run([&](flx_comm_t comm) {
                             return std::apply([&](auto... args) { return begin(args..., comm, &request); }, call.args);
                         });
                         return std::make_unique<Request>(self.shared(), request, std::move(call.views));
                     },
                     extra...);
}

}  // namespace

void add_collectives(py::class_<Communicator> &communicator) {
    const auto send = py::arg("send");
    const auto recv = py::arg("recv");
    const auto recv_or_none = py::arg("recv") = py::none();
    const auto op = py::arg("op") = static_cast<int>(FLX_SUM);
    const auto root = py::arg("root") = 0;
    const auto only = py::kw_only();
    const auto dtype = py::arg("dtype") = -1;
    const auto displs = py::arg("displs") = py::none();
    add(communicator, "barrier", flx_barrier, flx_ibarrier, barrier);
    add(communicator, "allreduce", flx_allreduce, flx_iallreduce, allreduce, send, recv_or_none, op, only, dtype);
    add(communicator, "scan", flx_scan, flx_iscan, allreduce, send, recv_or_none, op, only, dtype);
    add(communicator, "exscan", flx_exscan, flx_iexscan, allreduce, send, recv_or_none, op, only, dtype);
    add(communicator, "reduce", flx_reduce, flx_ireduce, reduce, send, recv_or_none, op, root, only, dtype);
    add(communicator, "reduce_scatter_block", flx_reduce_scatter_block, flx_ireduce_scatter_block, reduce_scatter_block,
        send, recv_or_none, op, only, dtype);
    add(communicator, "reduce_scatter", flx_reduce_scatter, flx_ireduce_scatter, reduce_scatter, send, recv,
        py::arg("recvcounts"), op, only, dtype);
    add(communicator, "bcast", flx_bcast, flx_ibcast, bcast, py::arg("buffer"), root, only, dtype);
    add(communicator, "allgather", flx_allgather, flx_iallgather, allgather, send, recv, only, dtype);
    add(communicator, "allgatherv", flx_allgatherv, flx_iallgatherv, allgatherv, send, recv, py::arg("recvcounts"),
        displs, only, dtype);
    add(communicator, "gather", flx_gather, flx_igather, gather, send, recv_or_none, root, only, dtype);
    add(communicator, "gatherv", flx_gatherv, flx_igatherv, gatherv, send, recv_or_none,
        py::arg("recvcounts") = py::none(), displs, root, only, dtype);
    add(communicator, "scatter", flx_scatter, flx_iscatter, scatter, py::arg("send"), recv, root, only, dtype);
    add(communicator, "scatterv", flx_scatterv, flx_iscatterv, scatterv, send, py::arg("sendcounts"), recv, displs,
        root, only, dtype);
    add(communicator, "alltoall", flx_alltoall, flx_ialltoall, alltoall, send, recv_or_none, only, dtype);
    add(communicator, "alltoallv", flx_alltoallv, flx_ialltoallv, alltoallv, send, py::arg("sendcounts"), recv,
        py::arg("recvcounts"), py::arg("sdispls") = py::none(), py::arg("rdispls") = py::none(), only, dtype);
}

}  // namespace flx::python
