#include "device/op_context.h"

namespace moesaic {

void check_bindings(const Plan& plan, const Bindings& bindings) {
  MOESAIC_CHECK(bindings.size() == plan.program().slots().size(), "{} has {} slots, {} are bound",
                plan.program().name(), plan.program().slots().size(), bindings.size());
  MOESAIC_CHECK(plan.workspace_bytes() == 0 || bindings.front() != nullptr, "{} needs a workspace",
                plan.program().name());
}

std::byte* OpContext::address(Handle h, Mode mode, DType type) const {
  const TensorInfo& info = plan_.program().info(h);
  MOESAIC_CHECK(info.dtype == type, "{}: {} holds {}, asked for {}", node_.name, info.name,
                name_of(info.dtype), name_of(type));
  for (const Access& access : node_.accesses)
    if (access.handle == h && access.mode == mode)
      return bindings_[static_cast<size_t>(info.slot.index)] + plan_.offset(h);
  MOESAIC_CHECK(false, "{}: {} was not declared with this mode", node_.name, info.name);
  return nullptr;
}

}  // namespace moesaic
