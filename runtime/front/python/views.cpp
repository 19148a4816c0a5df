#include "runtime/front/python/views.h"

#include <array>
#include <string>
#include <string_view>

#include "runtime/front/python/dlpack.h"

namespace flx::python {
namespace {

constexpr int kUnknown = -1;

int integer_of(size_t bytes, bool is_signed) {
    switch (bytes) {
        case 1:
            return is_signed ? FLX_INT8 : FLX_UINT8;
        case 2:
            return is_signed ? FLX_INT16 : FLX_UINT16;
        case 4:
            return is_signed ? FLX_INT32 : FLX_UINT32;
        case 8:
            return is_signed ? FLX_INT64 : FLX_UINT64;
        default:
            return kUnknown;
    }
}

/// What the struct module writes for one element; null stands for bytes.
int dtype_of_format(const char *format, size_t bytes) {
    std::string_view text = format == nullptr ? "B" : format;
    if (!text.empty() && (text.front() == '@' || text.front() == '=' || text.front() == '<'))
        text.remove_prefix(1);
    if (text == "Zf")
        return FLX_COMPLEX_F32;
    if (text == "Zd")
        return FLX_COMPLEX_F64;
    if (text.size() != 1)
        return kUnknown;
    switch (text.front()) {
        case 'b':
        case 'h':
        case 'i':
        case 'l':
        case 'q':
        case 'n':
            return integer_of(bytes, true);
        case 'B':
        case 'H':
        case 'I':
        case 'L':
        case 'Q':
        case 'N':
        case '?':
        case 'c':
            return integer_of(bytes, false);
        case 'e':
            return FLX_F16;
        case 'f':
            return FLX_F32;
        case 'd':
            return FLX_F64;
        default:
            return kUnknown;
    }
}

int dtype_of_tensor(const dlpack::DataType &type) {
    if (type.lanes != 1)
        return kUnknown;
    const size_t bytes = type.bits / 8;
    switch (type.code) {
        case dlpack::kInt:
            return integer_of(bytes, true);
        case dlpack::kUint:
        case dlpack::kBool:
            return integer_of(bytes, false);
        case dlpack::kFloat:
            return bytes == 2 ? FLX_F16 : bytes == 4 ? FLX_F32 : bytes == 8 ? FLX_F64 : kUnknown;
        case dlpack::kBfloat:
            return bytes == 2 ? FLX_BF16 : kUnknown;
        case dlpack::kComplex:
            return bytes == 8 ? FLX_COMPLEX_F32 : bytes == 16 ? FLX_COMPLEX_F64 : kUnknown;
        default:
            return kUnknown;
    }
}

bool dense(const dlpack::Tensor &tensor) {
    if (tensor.strides == nullptr)
        return true;
    int64_t stride = 1;
    for (int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
        if (tensor.shape[axis] > 1 && tensor.strides[axis] != stride)
            return false;
        stride *= tensor.shape[axis];
    }
    return true;
}

flx_dtype_t known(int dtype, const char *name, const std::string &type) {
    if (dtype == kUnknown)
        refuse(std::string(name) + " has elements of type " + type + ", which FLX does not know; dtype= says as what " +
               "they are to be taken");
    return static_cast<flx_dtype_t>(dtype);
}

}  // namespace

// What is held already is released where it is refused: the other constructor has ended then.
View::View(const py::handle &object, const char *name, bool written, int dtype) : View() {
    if (PyObject_CheckBuffer(object.ptr()) != 0)
        take_buffer(object, name, written, dtype);
    else if (py::hasattr(object, "__dlpack__"))
        take_tensor(object, name, dtype);
    else
        refuse(std::string(name) + " is of type " + Py_TYPE(object.ptr())->tp_name +
               ", which has neither the buffer protocol nor DLPack");
    there_ = true;
}

void View::take_buffer(const py::handle &object, const char *name, bool written, int dtype) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0)
        throw py::error_already_set();
    held_ = true;
    data_ = buffer_.buf;
    const auto item = static_cast<size_t>(buffer_.itemsize);
    const std::string_view format = buffer_.format == nullptr ? "" : buffer_.format;
    truth_ = dtype == kUnknown && !format.empty() && format.back() == '?';
    if (dtype == kUnknown)
        dtype = known(dtype_of_format(buffer_.format, item), name, std::string(format));
    dtype_ = static_cast<flx_dtype_t>(dtype);
    count_bytes(static_cast<size_t>(buffer_.len), name);
}

void View::take_tensor(const py::handle &object, const char *name, int dtype) {
    capsule_ = object.attr("__dlpack__")();
    auto *managed = static_cast<dlpack::ManagedTensor *>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
    if (managed == nullptr)
        throw py::error_already_set();
    const dlpack::Tensor &tensor = managed->tensor;
    const int32_t where = tensor.device.type;
    if (where != dlpack::kCpu && where != dlpack::kCuda && where != dlpack::kCudaHost && where != dlpack::kCudaManaged)
        refuse(std::string(name) + " is neither in host memory nor on a GPU that CUDA knows");
    if (!dense(tensor))
        refuse(std::string(name) + " is not dense; contiguous() makes a copy that is");
    data_ = static_cast<std::byte *>(tensor.data) + tensor.byte_offset;
    truth_ = dtype == kUnknown && tensor.dtype.code == dlpack::kBool;
    if (dtype == kUnknown)
        dtype = known(dtype_of_tensor(tensor.dtype), name,
                      "code " + std::to_string(tensor.dtype.code) + ", " + std::to_string(tensor.dtype.bits) + " bits");
    dtype_ = static_cast<flx_dtype_t>(dtype);
    size_t bytes = tensor.dtype.bits / 8;
    for (int32_t axis = 0; axis < tensor.ndim; ++axis)
        bytes *= static_cast<size_t>(tensor.shape[axis]);
    count_bytes(bytes, name);
}

void View::count_bytes(size_t bytes, const char *name) {
    constexpr std::array<unsigned char, FLX_F8E5M2 + 1> kSizes = {1, 1,  2, 2,  4, 4, 8,  8, 2,  2, 4, 8,
                                                                  8, 16, 8, 16, 8, 8, 16, 8, 16, 1, 1};
    size_t item = 0;
    if (dtype_ >= 0 && static_cast<size_t>(dtype_) < kSizes.size())
        item = kSizes[static_cast<size_t>(dtype_)];
    else
        check(flx_dtype_size(dtype_, &item));
    if (bytes % item != 0)
        refuse(std::string(name) + " has " + std::to_string(bytes) + " bytes, which are no whole elements of " +
               std::to_string(item));
    count_ = bytes / item;
}

void raise(flx_status_t status, const char *sentence) {
    const py::module_ package = py::module_::import("flx._flx");
    const py::object error = package.attr("Error")(sentence);
    error.attr("status") = package.attr("Status")(static_cast<int>(status));
    const std::string_view text = sentence;
    const size_t mark = text.rfind("[FLX-E");
    error.attr("code") = mark == std::string_view::npos ? std::string() : std::string(text.substr(mark + 1, 8));
    PyErr_SetObject(package.attr("Error").ptr(), error.ptr());
    throw py::error_already_set();
}

void refuse(const std::string &sentence) {
    raise(FLX_ERR_ARGUMENT, sentence.c_str());
    throw py::error_already_set();
}

}  // namespace flx::python
