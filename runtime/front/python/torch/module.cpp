/// The module flx._torch, of which flx/torch.py makes the backend `flx`.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "runtime/front/python/torch/process_group.h"

PYBIND11_MODULE(_torch, module) {
    namespace py = pybind11;
    py::module_::import("torch.distributed");  // which knows ProcessGroup and Store
    module.def(
        "process_group",
        [](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
           const std::chrono::milliseconds &timeout) -> c10::intrusive_ptr<flx::torch::Base> {
            return c10::make_intrusive<flx::torch::ProcessGroupFlx>(store, rank, size, timeout);
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
        py::call_guard<py::gil_scoped_release>());
}
