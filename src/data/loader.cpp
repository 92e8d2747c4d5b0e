#include "data/loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "config/data_blend.h"

namespace moesaic {
namespace {

constexpr uint64_t kSeedStep = 0x9e3779b97f4a7c15;  // odd, with bits all over: 2^64 / the golden ratio
constexpr uint64_t kValidSeed = 1;  // held-out samples keep their order whatever the run's seed

void check_length(int64_t num_tokens, int64_t seq_len, const std::string& what, const char* advice) {
  require<ConfigError>(num_tokens >= seq_len + 1,
                       "{} has {} tokens, fewer than one sample of S + 1 = {}: {}, or lower train.seq_len",
                       what, num_tokens, seq_len + 1, advice);
}

Batch empty_batch(size_t num_sequences, int64_t seq_len) {
  Batch batch;
  const size_t total = num_sequences * static_cast<size_t>(seq_len);
  for (auto* array : {&batch.tokens, &batch.targets, &batch.positions, &batch.doc_start})
    array->reserve(total);
  return batch;
}

}  // namespace

SampleSet::SampleSet(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end, int64_t seq_len,
                     int64_t vocab, bool packed_documents)
    : file_(std::move(file)),
      begin_(begin),
      seq_len_(seq_len),
      vocab_(vocab),
      num_samples_(end > begin ? (end - begin - 1) / seq_len : 0),
      packed_documents_(packed_documents) {
  MOESAIC_CHECK(0 <= begin && begin <= end && end <= file_->num_tokens(), "[{}, {})", begin, end);
}

void SampleSet::append_to(Batch& batch, int64_t sample) const {
  MOESAIC_CHECK(sample >= 0 && sample < num_samples_, "sample {} of {}", sample, num_samples_);
  const int64_t first = begin_ + sample * seq_len_;
  std::vector<int32_t> ids(static_cast<size_t>(seq_len_) + 1);
  file_->read(first, ids, vocab_);
  batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end() - 1);
  batch.targets.insert(batch.targets.end(), ids.begin() + 1, ids.end());

  std::vector<int64_t> cuts;
  if (packed_documents_) cuts = file_->document_starts(first, first + seq_len_);
  auto cut = cuts.begin();
  int64_t start = 0;
  int32_t* targets = batch.targets.data() + batch.targets.size() - seq_len_;
  for (int64_t i = 0; i < seq_len_; ++i) {
    if (cut != cuts.end() && *cut == first + i) {
      start = i;
      ++cut;
    }
    if (cut != cuts.end() && *cut == first + i + 1) targets[i] = -1;
    batch.positions.push_back(static_cast<int32_t>(i - start));
    batch.doc_start.push_back(static_cast<int32_t>(start));
  }
  batch.num_counted += seq_len_ - static_cast<int64_t>(cuts.size());
  ++batch.num_sequences;
}

Loader::Loader(const DataConfig& data, int64_t seq_len, int64_t vocab, uint64_t seed) : seq_len_(seq_len) {
  require<ConfigError>(seq_len >= 1, "train.seq_len must be at least 1, not {}", seq_len);
  require<ConfigError>(data.valid_fraction >= 0 && data.valid_fraction < 1,
                       "data.valid_fraction must be in [0, 1), not {}", data.valid_fraction);
  const auto add_valid = [&](std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end) {
    valid_.emplace_back(std::move(file), begin, end, seq_len, vocab, data.packed_documents);
    valid_starts_.push_back(valid_starts_.back() + valid_.back().num_samples());
  };
  std::vector<double> weights;
  for (const BlendPart& part : parse_blend(data.train)) {
    const auto file = std::make_shared<const TokenFile>(part.path);
    const int64_t total = file->num_tokens();
    check_length(total, seq_len, part.path, "give more text");
    int64_t held_out = 0;
    if (data.valid.empty() && data.valid_fraction > 0) {
      held_out = static_cast<int64_t>(data.valid_fraction * static_cast<double>(total));
      check_length(
          held_out, seq_len,
          fmt::format("the held-out tail (data.valid_fraction = {}) of {}", data.valid_fraction, part.path),
          "raise data.valid_fraction, name a file in data.valid, set data.valid_fraction = 0 for none");
      add_valid(file, total - held_out, total);
    }
    check_length(total - held_out, seq_len, part.path + " without its held-out tail",
                 "give more text, lower data.valid_fraction");
    sets_.emplace_back(file, 0, total - held_out, seq_len, vocab, data.packed_documents);
    // A seed for each set, so that equal sets are not walked in step.
    orders_.emplace_back(sets_.back().num_samples(), seed + kSeedStep * weights.size());
    weights.push_back(part.weight);
  }
  blend_.emplace(weights);
  if (!data.valid.empty()) {
    const auto other = std::make_shared<const TokenFile>(data.valid);
    check_length(other->num_tokens(), seq_len, data.valid, "give more text");
    add_valid(other, 0, other->num_tokens());
  }
  if (valid_.size() > 1) valid_order_.emplace(num_valid_samples(), kValidSeed);
}

int64_t Loader::num_train_samples() const {
  int64_t sum = 0;
  for (const SampleSet& set : sets_) sum += set.num_samples();
  return sum;
}

Loader::Origin Loader::origin(int64_t position) const {
  const Blend::Place place = blend_->at(position);
  const Sampler& order = orders_[static_cast<size_t>(place.set)];
  return {place.set, order.epoch_of(place.index), order.sample_at(place.index)};
}

Batch Loader::train(std::span<const int64_t> positions) const {
  Batch batch = empty_batch(positions.size(), seq_len_);
  for (const int64_t position : positions) {
    const Origin from = origin(position);
    sets_[static_cast<size_t>(from.set)].append_to(batch, from.sample);
  }
  return batch;
}

Batch Loader::valid(std::span<const int64_t> samples) const {
  Batch batch = empty_batch(samples.size(), seq_len_);
  for (const int64_t sample : samples) {
    if (sample < num_valid_samples()) {
      const int64_t number = valid_order_ ? valid_order_->sample_at(sample) : sample;
      const auto above = std::upper_bound(valid_starts_.begin(), valid_starts_.end(), number);
      const auto set = static_cast<size_t>(above - valid_starts_.begin()) - 1;
      valid_[set].append_to(batch, number - valid_starts_[set]);
      continue;
    }
    const auto row = static_cast<size_t>(seq_len_);
    batch.tokens.insert(batch.tokens.end(), row, 0);
    batch.targets.insert(batch.targets.end(), row, -1);
    for (int64_t i = 0; i < seq_len_; ++i) batch.positions.push_back(static_cast<int32_t>(i));
    batch.doc_start.insert(batch.doc_start.end(), row, 0);
    ++batch.num_sequences;
  }
  return batch;
}

}  // namespace moesaic
