#include "train/batch_feed.h"

#include <cstring>

#include "ops/elementwise/elementwise.h"

namespace moesaic {

BatchFeed::BatchFeed(Stage& stage) : stage_(stage), scalars_(stage.device().host_memory(StepScalars::kLoss)) {
  const auto make = [&](const char* name, DType type, int64_t count) {
    Program g(name, stage.device().kind());
    g.segment("input");
    const Slot host = g.slot("host"), device = g.slot("device");
    ops::copy(g, Stream::copy, g.external(host, 0, "staging", type, {count}),
              g.external(device, 0, "batch", type, {count}));
    return std::make_unique<Plan>(std::move(g));
  };
  copy_ = make("input", DType::i32, BatchLayout(stage.spec()).bytes() / 4);
  copy_scalars_ = make("step numbers", DType::i32, StepScalars::kLoss / 4);
}

void BatchFeed::send(const Batch& batch, int64_t slot, int64_t place) {
  const LayerSpec& s = stage_.spec();
  const BatchLayout layout(s);
  while (static_cast<int64_t>(staging_.size()) <= slot)
    staging_.push_back(reinterpret_cast<int32_t*>(stage_.device().host_memory(layout.bytes())));
  int32_t* to = staging_[static_cast<size_t>(slot)];
  const bool sp = s.layout.attention == AttentionStrategy::sp;
  const int64_t sequences = sp ? s.B : s.B / s.n, first_sequence = sp ? 0 : s.n_rank * sequences;
  const int64_t length = sp ? s.S / s.n : s.S, first = sp ? s.n_rank * length : 0;
  const std::vector<int32_t>* arrays[] = {&batch.tokens, &batch.targets, &batch.positions};
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t from = (first_sequence + b) * s.S + first;
    for (int array = 0; array < 3; ++array)
      std::memcpy(to + layout.offset(array) + b * length, arrays[array]->data() + from,
                  static_cast<size_t>(length) * 4);
    for (int64_t i = 0; i < length; ++i)
      to[layout.offset(3) + b * length + i] =
          s.num_scopes == 1 ? 0 : static_cast<int32_t>(first_sequence + b);
  }
  std::memcpy(to + layout.offset(4), batch.doc_start.data() + first_sequence * s.S * (sp ? 0 : 1),
              static_cast<size_t>(layout.size(4)) * 4);
  // For capacity: the scope of every token of the scope's group, and the order of those tokens on one rank.
  if (layout.size(5) > 1)
    for (int64_t t = 0; t < layout.size(5); ++t) {
      const int64_t replica = t / s.T / s.n, source = t / s.T % s.n;
      const int64_t sequence = (sp ? 0 : source * sequences) + t % s.T / length;
      const int64_t position = (sp ? source * length : 0) + t % length;
      to[layout.offset(5) + t] = s.num_scopes == 1 ? 0 : static_cast<int32_t>(sequence);
      const int64_t on_one_rank = (replica * s.B + sequence) * s.S + position;
      to[layout.offset(6) + on_one_rank] = static_cast<int32_t>(t);
    }
  stage_.device().replay(*copy_, {nullptr, reinterpret_cast<std::byte*>(to), stage_.batch_memory(place)});
}

void BatchFeed::send_scalars(int64_t counted, double learning_rate, double correction1, double correction2,
                             bool evaluation) {
  const float values[] = {counted > 0 ? 1.0f / static_cast<float>(counted) : 0.0f,
                          static_cast<float>(learning_rate), static_cast<float>(correction1),
                          static_cast<float>(correction2)};
  const auto count = static_cast<int32_t>(counted);
  std::memcpy(scalars_ + StepScalars::kLossScale, values, sizeof values);
  std::memcpy(scalars_ + StepScalars::kCounted, &count, 4);
  stage_.device().replay(
      *copy_scalars_, {nullptr, scalars_, evaluation ? stage_.evaluation_scalars() : stage_.step_scalars()});
}

}  // namespace moesaic
