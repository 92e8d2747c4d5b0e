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

void add_norm_parameters(ParameterTable& table, const ModelConfig& model, const std::string& name) {
  table.add({name, {model.hidden}, Init::ones, 0, false, name});
  if (model.layer_norm) add_bias_parameter(table, name + "_bias", model.hidden, name + "_bias");
}

void add_bias_parameter(ParameterTable& table, const std::string& name, int64_t width,
                        const std::string& device_tensor) {
  table.add({name, {width}, Init::normal, 0, false, device_tensor});
}

}  // namespace moesaic
