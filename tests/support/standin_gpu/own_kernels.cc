// Implements the kernels that differ from the CPU's. Their signatures match the schemas of LibTorch
// 2.11. With another version's schemas, loading the library fails.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>

#include "tests/support/standin_gpu/counts.h"
#include "tests/support/standin_gpu/launch.h"
#include "tests/support/standin_gpu/operations.h"
#include "tests/support/standin_gpu/tensors.h"

namespace dslaunch::standin {
namespace {

using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

void CheckNotPinned(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool> pin,
             std::optional<at::MemoryFormat> format) {
  CheckNotPinned(pin);
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &TheDeviceAllocator(), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                    std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                    std::optional<at::Device> device, std::optional<bool> pin) {
  CheckNotPinned(pin);
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &TheDeviceAllocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

// Copies to the host and waits. Used if the target is not pinned, or if the caller asks to wait.
void CopyToHost(const Tensor& to, const Tensor& from) {
  const c10::Stream stream = CurrentStream(from.device().index());
  CheckMayWait("copy_ to the host", /*hidden=*/true);
  Enqueue(stream, {.name = "copy_ to the host", .touches = {TouchOf(from, false)}, .kernel = {}});
  DrainStream(NumberOf(stream));
  ThrowKernelError();
  const PlainDispatch plain;
  to.copy_(KernelAlias(from));
}

const char* Direction(const Tensor& to, const Tensor& from) {
  return !IsOnDevice(from) ? "to the device" : IsOnDevice(to) ? "on the device" : "to the host";
}

Tensor& Copy(Tensor& self, const Tensor& source, bool non_blocking) {
  TORCH_CHECK(source.defined(), "copy_: the source is undefined");
  if (self.is_same(source) || self.numel() == 0) return self;
  TORCH_CHECK(at::is_expandable_to(source.sizes(), self.sizes()), "copy_: ", source.sizes(),
              " does not fit into ", self.sizes());
  CountCopy(Direction(self, source), static_cast<uint64_t>(self.numel()) * source.itemsize());
  const bool on_device = IsOnDevice(self) && IsOnDevice(source);
  const bool later = on_device || (non_blocking && IsOurs(self) && IsOurs(source));
  if (!IsOnDevice(self) && !later) {
    CopyToHost(self, source);
    return self;
  }
  const c10::Stream stream = CurrentStream((IsOnDevice(source) ? source : self).device().index());
  if (on_device && self.device() != source.device()) {
    WaitForEvent(NumberOf(stream), RecordEvent(NumberOf(CurrentStream(self.device().index()))));
  }
  // Pageable memory is copied first, so that the caller may change it at once.
  const Tensor from = later ? source : source.clone();
  Enqueue(stream, {.name = "aten::copy_",
                   .touches = {TouchOf(from, false), TouchOf(self, true)},
                   .kernel = [from = KernelAlias(from), to = KernelAlias(self)](uint64_t) {
                     const PlainDispatch plain;
                     to.copy_(from);
                   }});
  if (on_device && self.device() != source.device()) {
    WaitForEvent(NumberOf(CurrentStream(self.device().index())), RecordEvent(NumberOf(stream)));
  }
  if (!later && !non_blocking) SynchronizeStream(stream, "copy_ to the device", /*hidden=*/true);
  return self;
}

Tensor CopyFrom(const Tensor& self, const Tensor& to, bool non_blocking) {
  Tensor target = to;
  return Copy(target, self, non_blocking);
}

const Tensor& Resize(const Tensor& self, c10::SymIntArrayRef sizes,
                     std::optional<at::MemoryFormat>) {
  const auto values = C10_AS_INTARRAYREF_SLOW(sizes);
  ResizeTensor(self, values, ContiguousStrides(values));
  return self;
}

Tensor& SetStorageOffset(Tensor& self, at::Storage storage, c10::SymInt offset,
                         c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  TORCH_CHECK(storage.device() == self.device(), "set_: the storage is on ", storage.device());
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  if (!impl->unsafe_storage().is_alias_of(storage)) {
    impl->set_storage_keep_dtype(std::move(storage));
  }
  impl->set_storage_offset(offset.expect_int());
  const auto values = C10_AS_INTARRAYREF_SLOW(sizes);
  ResizeTensor(self, values,
               strides.data() == nullptr ? at::IntArrayRef(ContiguousStrides(values))
                                         : C10_AS_INTARRAYREF_SLOW(strides));
  return self;
}
Tensor& SetStorage(Tensor& self, at::Storage storage) {
  const auto elements = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return SetStorageOffset(self, std::move(storage), 0, {c10::SymInt(elements)}, {c10::SymInt(1)});
}
Tensor& SetTensor(Tensor& self, const Tensor& source) {
  return SetStorageOffset(self, source.storage(), source.storage_offset(), source.sym_sizes(),
                          source.sym_strides());
}
Tensor& SetNothing(Tensor& self) {
  const c10::Storage storage(c10::Storage::use_byte_size_t(), 0, &TheDeviceAllocator(),
                             /*resizable=*/true);
  return SetStorageOffset(self, storage, 0, {c10::SymInt(0)}, {c10::SymInt(1)});
}

Tensor AsStrided(const Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                 std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}
Tensor View(const Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}
Tensor ReshapeAlias(const Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes),
                                    C10_AS_INTARRAYREF_SLOW(strides));
}
Tensor Unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

void RecordStream(Tensor& self, c10::Stream stream) {
  TheDeviceAllocator().recordStream(self.storage().data_ptr(), stream);
}

// Selects the plain implementation, because the CPU's flash attention kernel has another signature
// than CUDA's.
int64_t FusedSdpChoice(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                       double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::math);
}

// Implements dropout, because the CPU's own dropout does not draw its mask through a generator
// argument.
std::tuple<Tensor, Tensor> NativeDropout(const Tensor& input, double p, std::optional<bool> train) {
  const at::TensorOptions bools = input.options().dtype(at::kBool);
  if (p == 0 || !train.value_or(true)) return {input.clone(), at::ones_like(input, bools)};
  Tensor mask = at::empty_like(input, bools);
  mask.bernoulli_(1 - p);
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  return {input * mask * scale, mask};
}
Tensor NativeDropoutBackward(const Tensor& gradient, const Tensor& mask, double scale) {
  return gradient * mask * scale;
}

}  // namespace

std::set<std::string> RegisterOwnKernels(torch::Library& aten) {
  std::set<std::string> names;
  const auto add = [&](const char* name, auto* kernel) {
    names.insert(std::string("aten::") + name);
    aten.impl(name, kernel);
  };
  add("empty.memory_format", &Empty);
  add("empty_strided", &EmptyStrided);
  add("copy_", &Copy);
  add("_copy_from", &CopyFrom);
  add("resize_", &Resize);
  add("set_", &SetNothing);
  add("set_.source_Tensor", &SetTensor);
  add("set_.source_Storage", &SetStorage);
  add("set_.source_Storage_storage_offset", &SetStorageOffset);
  add("as_strided", &AsStrided);
  add("view", &View);
  add("_reshape_alias", &ReshapeAlias);
  add("unfold", &Unfold);
  add("record_stream", &RecordStream);
  add("_fused_sdp_choice", &FusedSdpChoice);
  add("native_dropout", &NativeDropout);
  add("native_dropout_backward", &NativeDropoutBackward);
  return names;
}

}  // namespace dslaunch::standin
