#include "device/op_context.h"

namespace moesaic {

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
