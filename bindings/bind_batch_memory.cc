#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "batch_memory.h"
#include "bind.h"
#include "waiting.h"

namespace headrace::python {
namespace {

// The structures of DLPack as they were before it had versions, by which every library takes
// tensors of others: https://dmlc.github.io/dlpack/latest/c_api.html
struct DlTensor {
  void* data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};
constexpr int32_t kCpu = 1;
constexpr const char* kCapsuleName = "dltensor";

// A tensor that keeps the memory, and nothing of Python: it may be freed by any thread, and after
// the interpreter.
struct Tensor {
  DlManagedTensor managed{};
  std::shared_ptr<BatchMemory> memory;
  std::vector<int64_t> shape;
};

void delete_tensor(DlManagedTensor* managed) { delete static_cast<Tensor*>(managed->context); }

// A consumer that takes the tensor out of the capsule renames the capsule.
void delete_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kCapsuleName) == 0) return;
  auto* const managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsuleName));
  managed->deleter(managed);
}

nb::object dlpack(const BatchMemoryHandle& self, const std::vector<int64_t>& shape, uint8_t code,
                  uint8_t bits) {
  auto tensor = std::make_unique<Tensor>();
  tensor->memory = self.shared();
  tensor->shape = shape;
  uint64_t size_bytes = bits / 8;
  for (const int64_t each : shape) size_bytes *= static_cast<uint64_t>(each);
  if (size_bytes != self.memory().bytes().size()) {
    throw nb::value_error("the shape has another number of bytes than the memory");
  }
  tensor->managed = {.tensor = {.data = self.memory().bytes().data(),
                                .device = {.type = kCpu, .id = 0},
                                .ndim = static_cast<int32_t>(shape.size()),
                                .dtype = {.code = code, .bits = bits, .lanes = 1},
                                .shape = tensor->shape.data(),
                                .strides = nullptr,
                                .byte_offset = 0},
                     .context = tensor.get(),
                     .deleter = &delete_tensor};
  PyObject* const capsule = PyCapsule_New(&tensor->managed, kCapsuleName, &delete_capsule);
  if (capsule == nullptr) throw nb::python_error();
  // The capsule owns it from here on, and then the consumer of the capsule.
  [[maybe_unused]] const Tensor* const given = tensor.release();
  return nb::steal(capsule);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError, "the memory was not initialised");
    return -1;
  }
  const std::span<std::byte> bytes = nb::inst_ptr<BatchMemoryHandle>(self)->memory().bytes();
  return PyBuffer_FillInfo(view, self, bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                           /*readonly=*/0, flags);
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

}  // namespace

void bind_batch_memory(Module& module) {
  Class<BatchMemoryHandle>(module, "BatchMemory", nb::type_slots(slots), nb::is_final())
      .def("give_away",
           [](const BatchMemoryHandle& self) {
             without_gil([&self](MayBlock) { self.memory().give_away(); });
           })
      .def("dlpack", &dlpack, "shape"_a, "code"_a, "bits"_a);
}

}  // namespace headrace::python
