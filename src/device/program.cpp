#include "device/program.h"

#include <utility>

#include "base/check.h"

namespace moesaic {

Program::Program(std::string name, DeviceKind device)
    : name_(std::move(name)), device_(device), slots_{"workspace"} {}

Slot Program::slot(std::string name) {
  slots_.push_back(std::move(name));
  return {static_cast<int32_t>(slots_.size() - 1)};
}

Handle Program::add_tensor(TensorInfo info) {
  const auto index = static_cast<int32_t>(tensors_.size());
  if (info.root < 0) info.root = index;
  tensors_.push_back(std::move(info));
  return {index};
}

Handle Program::external(Slot slot, int64_t offset, std::string name, DType dtype, Shape shape) {
  MOESAIC_CHECK(slot.index > 0 && slot.index < static_cast<int32_t>(slots_.size()), "{}: no such slot", name);
  MOESAIC_CHECK(offset >= 0 && offset % size_of(dtype) == 0, "{}: offset {}", name, offset);
  return add_tensor({std::move(name), dtype, shape, slot, offset, -1});
}

Handle Program::temp(std::string name, DType dtype, Shape shape) {
  return add_tensor({std::move(name), dtype, shape, Slot{0}, 0, -1});
}

Handle Program::view(Handle of, int64_t first, Shape shape, std::string name) {
  const TensorInfo& base = info(of);
  MOESAIC_CHECK(first >= 0 && first + shape.numel() <= base.shape.numel(),
                "a view of {} {} from {} does not fit {}", base.name, base.shape.str(), first, shape.str());
  if (name.empty()) name = base.name;
  return add_tensor(
      {std::move(name), base.dtype, shape, base.slot, base.offset + first * size_of(base.dtype), base.root});
}

void Program::add(Node node) {
  MOESAIC_CHECK(!node.streams.empty() && (node.run != nullptr) != (node.post != nullptr), "{}", node.name);
  for (const Access& access : node.accesses)
    MOESAIC_CHECK(access.handle, "{}: an access without a tensor", node.name);
  node.segment = segment_;
  nodes_.push_back(std::move(node));
}

const TensorInfo& Program::info(Handle h) const {
  MOESAIC_CHECK(h.index >= 0 && h.index < static_cast<int32_t>(tensors_.size()), "handle {}", h.index);
  return tensors_[static_cast<size_t>(h.index)];
}

}  // namespace moesaic
