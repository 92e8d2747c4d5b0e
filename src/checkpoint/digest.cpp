#include "checkpoint/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace moesaic {

void Digest::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Digest::Digest() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Digest::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  const XXH128_hash_t value = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", value.high64, value.low64);
}

std::string digest_of(std::span<const std::byte> bytes) {
  Digest digest;
  digest.update(bytes);
  return digest.hex();
}

}  // namespace moesaic
