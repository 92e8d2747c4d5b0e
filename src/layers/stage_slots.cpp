#include "layers/stage_slots.h"

namespace moesaic {

BatchLayout::BatchLayout(const LayerSpec& spec) {
  const bool capacity = spec.balance.capacity_factor > 0;
  const int64_t scope_tokens = capacity ? spec.groups.scope->size() * spec.T : 1;
  sizes_ = {spec.T, spec.T, spec.T, spec.T, spec.attention_batch * spec.S, scope_tokens, scope_tokens};
  for (size_t i = 0; i < kArrays; ++i) offsets_[i + 1] = offsets_[i] + round_up(sizes_[i], 64);
}

Handle BatchLayout::at(Program& g, const StageSlots& slots, int array) const {
  static constexpr std::array<const char*, kArrays> kNames{"tokens",    "targets",   "positions", "scope",
                                                           "doc_start", "all_scope", "all_order"};
  return g.external(slots.batch, 4 * offset(array), kNames[static_cast<size_t>(array)], DType::i32,
                    {size(array)});
}

}  // namespace moesaic
