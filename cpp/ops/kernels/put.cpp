// put_, with which autograd computes the gradient of take. ATen's kernel checks whether only
// deterministic algorithms are allowed; but that must be decided at the call, because it may have
// changed when the kernel runs. So this implementation is made of other operators: sums are
// computed one by one, and are always deterministic.
#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/index_put.h>

#include "ops/launch/function_kernel.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

void run_put(at::Tensor& self, const at::Tensor& index, const at::Tensor& source, bool accumulate) {
  const auto [least, greatest] = at::aminmax(index);
  for (const auto place : {least.item<std::int64_t>(), greatest.item<std::int64_t>()}) {
    TORCH_CHECK_INDEX(place >= -self.numel() && place < self.numel(),
                      "out of range: tried to access index ", place, " on a tensor of ",
                      self.numel(), " elements.");
  }
  auto flat = self.reshape(-1);
  if (accumulate) {
    flat.index_add_(0, index.reshape(-1).remainder(self.numel()), source.reshape(-1));
  } else {
    at::index_put_(flat, {index.reshape(-1)}, source.reshape(-1));
  }
  if (!flat.is_alias_of(self)) self.copy_(flat.view(self.sizes()));
}
const FunctionKernel<&run_put> put_kernel{"aten::put_"};

at::Tensor& put(at::Tensor& self, const at::Tensor& index, const at::Tensor& source,
                bool accumulate) {
  if (!accumulate) at::globalContext().alertNotDeterministic("put_");
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "put_(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but got self.dtype = ",
              self.scalar_type(), " and source.dtype = ", source.scalar_type());
  SameDevice devices("aten::put_");
  devices.check(self);
  devices.check(index);
  devices.check(source);
  TORCH_CHECK_INDEX(source.numel() == index.numel(),
                    "put_(): Expected source and index to have the same number of elements, but "
                    "got source.numel() = ",
                    source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                    "put_(): Tried to put elements into an empty tensor");
  at::assert_no_internal_overlap(self);
  at::assert_no_overlap(self, index);
  at::assert_no_overlap(self, source);
  if (index.numel() == 0) return self;
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kHalf, at::kBool, at::kBFloat16, self.scalar_type(),
                                         "take_put_cpu", [] {});
  put_kernel.launch(self.device(), self, index, source, accumulate);
  return self;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("put_", TORCH_FN(put)); }

}  // namespace openreg::ops
