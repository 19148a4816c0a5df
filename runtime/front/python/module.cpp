/// The module flx._flx: what the package flx (flx/__init__.py) shows.
#include <flx.h>
#include <pybind11/pybind11.h>

#include <string>

#include "runtime/front/python/communicator.h"

namespace flx::python {
namespace {

/// Memory of flx_malloc, which collectives between ranks of a host move faster. It has the buffer protocol.
class Memory {
  public:
    explicit Memory(size_t bytes) : bytes_(bytes) { check(flx_malloc(bytes, &memory_)); }
    ~Memory() { (void)flx_free(memory_); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    [[nodiscard]] py::buffer_info info() {
        return {static_cast<unsigned char *>(memory_), static_cast<py::ssize_t>(bytes_)};
    }

  private:
    void *memory_ = nullptr;
    size_t bytes_;
};

void add_numbers(py::module_ &module) {
    const py::object enumeration = py::module_::import("enum").attr("IntEnum");
    py::dict statuses;
    const char *const names[] = {"SUCCESS", "ARGUMENT", "CONFIG", "UNSUPPORTED", "MISMATCH",
                                 "LINK",    "PEER",     "COMM",   "SYSTEM"};
    int status = 0;
    for (const char *name : names)
        statuses[name] = status++;
    module.attr("Status") = enumeration("Status", statuses, py::arg("module") = "flx");
    const auto number = [&](const char *name, int value) { module.attr(name) = value; };
    number("INT8", FLX_INT8), number("UINT8", FLX_UINT8), number("INT16", FLX_INT16), number("UINT16", FLX_UINT16);
    number("INT32", FLX_INT32), number("UINT32", FLX_UINT32), number("INT64", FLX_INT64), number("UINT64", FLX_UINT64);
    number("F16", FLX_F16), number("BF16", FLX_BF16), number("F32", FLX_F32), number("F64", FLX_F64);
    number("COMPLEX_F32", FLX_COMPLEX_F32), number("COMPLEX_F64", FLX_COMPLEX_F64);
    number("F8E4M3", FLX_F8E4M3), number("F8E5M2", FLX_F8E5M2);
    number("F32_INT32", FLX_F32_INT32), number("F64_INT32", FLX_F64_INT32), number("INT32_INT32", FLX_INT32_INT32);
    number("SUM", FLX_SUM), number("PROD", FLX_PROD), number("MIN", FLX_MIN), number("MAX", FLX_MAX);
    number("AVG", FLX_AVG), number("LAND", FLX_LAND), number("LOR", FLX_LOR), number("LXOR", FLX_LXOR);
    number("BAND", FLX_BAND), number("BOR", FLX_BOR), number("BXOR", FLX_BXOR);
    number("MINLOC", FLX_MINLOC), number("MAXLOC", FLX_MAXLOC);
}

}  // namespace
}  // namespace flx::python

PYBIND11_MODULE(_flx, module) {
    using namespace flx::python;
    module.attr("Error") =
        py::reinterpret_steal<py::object>(PyErr_NewException("flx.Error", PyExc_RuntimeError, nullptr));
    add_numbers(module);
    module.def("version", [] {
        const int version = flx_version();
        return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
               std::to_string(version % 100);
    });
    module.def(
        "nothing", [] {}, "Returns at once: what a call of this module costs by itself.");
    py::class_<Memory>(module, "Memory", py::buffer_protocol())
        .def(py::init<size_t>(), py::arg("bytes"))
        .def_buffer(&Memory::info);
    py::class_<Request>(module, "Request").def("wait", &Request::wait).def("test", &Request::test);
    py::class_<Communicator> communicator(module, "Communicator");
    communicator.def_property_readonly("rank", [](const Communicator &self) { return self.handle().rank; })
        .def_property_readonly("size", [](const Communicator &self) { return self.handle().size; })
        .def_static("from_mpi", &from_mpi, py::arg("mpi_comm"))
        .def_static("from_store", &from_store, py::arg("address") = py::none(), py::arg("port") = 0,
                    py::arg("rank") = -1, py::arg("size") = 0)
        .def("dup", &Communicator::dup)
        .def("split", &Communicator::split, py::arg("color"), py::arg("key") = 0)
        .def("free", &Communicator::free)
        .def("abort", &Communicator::abort, py::arg("reason") = "");
    add_collectives(communicator);
}
