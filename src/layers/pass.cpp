#include "layers/pass.h"

#include "base/check.h"

namespace moesaic {

Handle Pass::parameter(const std::string& name, Shape shape, Slot dense, Slot experts, DType type,
                       const char* mark) {
  const ParameterTable::Place place = table.place(prefix + name);
  MOESAIC_CHECK(place.numel == shape.numel(), "{}{}: {} elements, asked for {}", prefix, name, place.numel,
                shape.str());
  const bool second = table.buckets()[static_cast<size_t>(place.bucket)].replicas == Replicas::edp;
  return g.external(second ? experts : dense, place.offset * size_of(type), mark + name, type, shape);
}

}  // namespace moesaic
