#include "runtime/front/python/torch/sparse.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace flx::torch {
namespace {

void must(flx_status_t status) {
    if (status != FLX_SUCCESS)
        throw std::runtime_error(flx_last_error());
}

/// What a rank has: its shape as numbers of one count on all ranks that have as many axes, and its entries.
std::vector<int64_t> shape_of(const Tensor &tensor) {
    std::vector<int64_t> shape{tensor._nnz(), tensor.sparse_dim(), tensor.dense_dim()};
    shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
    return shape;
}

/// Blocks of the ranks, one after the other.
Tensor gather(const Tensor &mine, const std::vector<int64_t> &entries, int64_t elements, flx_comm_t comm) {
    std::vector<size_t> counts;
    std::vector<size_t> places;
    size_t all = 0;
    for (const int64_t each : entries) {
        counts.push_back(static_cast<size_t>(each * elements));
        places.push_back(all);
        all += counts.back();
    }
    Tensor result = at::empty({static_cast<int64_t>(all)}, mine.options());
    must(flx_allgatherv(mine.data_ptr(), static_cast<size_t>(mine.numel()), result.data_ptr(), counts.data(),
                        places.data(), dtype_of(mine), comm));
    return result;
}

}  // namespace

void check_sparse(const Tensors &tensors, const c10d::ReduceOp &op) {
    for (const Tensor &tensor : tensors)
        TORCH_CHECK(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
                    "invalid tensor layout: sparse tensors are COO in host memory, and one is ", tensor.layout(),
                    " on ", tensor.device());
    TORCH_CHECK(static_cast<c10d::ReduceOp::RedOpType>(op) == c10d::ReduceOp::SUM,
                "unsupported reduction operation: sparse tensors are added, and nothing else");
    check_all_alike(tensors);
}

Tensor own_sum(const Tensors &tensors) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    return reduced(tensors, c10d::ReduceOp::SUM).coalesce();
}

Tensor sum_of_sparse(const Tensor &mine, int size, flx_comm_t comm) {
    const auto ranks = static_cast<size_t>(size);
    const std::vector<int64_t> shape = shape_of(mine);
    std::vector<int64_t> axes(ranks);
    const auto own = static_cast<int64_t>(shape.size());
    must(flx_allgather(&own, axes.data(), 1, FLX_INT64, comm));
    for (size_t rank = 0; rank < ranks; ++rank)
        TORCH_CHECK(axes[rank] == axes[0], "ranks 0 and ", rank, " have sparse tensors of ", axes[0] - 3, " and ",
                    axes[rank] - 3, " axes");
    std::vector<int64_t> shapes(ranks * shape.size());
    must(flx_allgather(shape.data(), shapes.data(), shape.size(), FLX_INT64, comm));
    std::vector<int64_t> entries(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
        const auto theirs = shapes.begin() + static_cast<ptrdiff_t>(rank * shape.size());
        TORCH_CHECK(std::equal(theirs + 1, theirs + own, shapes.begin() + 1), "ranks 0 and ", rank,
                    " have sparse tensors of other shapes, or other axes of them are dense");
        entries[rank] = *theirs;
    }
    const Tensor places = mine._indices().t().contiguous();  // an entry's place, one after the other
    const Tensor values = mine._values().contiguous();
    int64_t of_entry = 1;
    for (int64_t axis = 1; axis < values.dim(); ++axis)
        of_entry *= values.size(axis);
    const Tensor all_places = gather(places, entries, mine.sparse_dim(), comm);
    const Tensor all_values = gather(values, entries, of_entry, comm);
    std::vector<int64_t> sizes = values.sizes().vec();
    sizes.front() = std::accumulate(entries.begin(), entries.end(), int64_t{0});
    return at::_sparse_coo_tensor_unsafe(all_places.view({sizes.front(), mine.sparse_dim()}).t(),
                                         all_values.view(sizes), mine.sizes(), mine.options())
        .coalesce();
}

}  // namespace flx::torch
