#include "comm/messages/messenger.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fingerprint.h"

namespace moesaic::messages {
namespace {

constexpr size_t kMaxEarly = 1 << 16;        // offers of one rank that this one has not come to yet ...
constexpr size_t kMaxEarlyBytes = 64 << 20;  // ... and what they bring

}  // namespace

Messenger::Messenger(Control& control) : control_(control), early_(static_cast<size_t>(control.size())) {}

std::unique_ptr<Communicator> Messenger::communicator(const std::vector<int64_t>& ranks) {
  const uint64_t group = open_group(ranks);
  const auto me = std::find(ranks.begin(), ranks.end(), rank());
  return make_communicator(shared_from_this(), group, ranks, static_cast<size_t>(me - ranks.begin()));
}

uint64_t Messenger::open_group(const std::vector<int64_t>& ranks) {
  MOESAIC_CHECK(std::count(ranks.begin(), ranks.end(), rank()) == 1, "rank {} is not in the group", rank());
  std::string name = std::to_string(num_groups_[ranks]++);
  for (int64_t r : ranks) name += fmt::format(",{}", r);
  for (int64_t r : ranks)
    if (r != rank()) connect(r);
  return fingerprint(name);
}

void Messenger::post(Operation& operation, const std::vector<int64_t>& ranks, const Offer& offer,
                     const std::vector<Part>& parts) {
  const OperationKey& key = operation.key();
  MOESAIC_CHECK(posted_.emplace(key, &operation).second, "collective number {} was posted twice",
                key.sequence);
  for (size_t p = 0; p < ranks.size(); ++p) {
    if (ranks[p] == rank()) continue;
    const Part& part = parts[p];
    const Header header{.type = Header::offer,
                        .channel = key.channel,
                        .group = key.group,
                        .sequence = key.sequence,
                        .bytes = offer.size,
                        .want = part.want,
                        .attached = part.attached() ? part.send_bytes : -1,
                        .kind = static_cast<int32_t>(offer.kind),
                        .root = static_cast<int32_t>(offer.root)};
    enqueue(ranks[p], header, operation, part.send, std::max<int64_t>(header.attached, 0));
  }
  for (int64_t r : ranks) {
    if (r == rank()) continue;
    Early& from = early_[static_cast<size_t>(r)];
    const auto at = from.offers.find(key);
    if (at == from.offers.end()) continue;
    const Early::Offered early = std::move(at->second);
    from.offers.erase(at);
    from.bytes -= early.attached ? early.attached->size() : 0;
    operation.on_offer(r, {static_cast<Kind>(early.header.kind), early.header.bytes, early.header.root},
                       early.header.want, early.attached);
  }
}

void Messenger::send_data(Operation& operation, int64_t rank, const std::byte* data, int64_t bytes) {
  const OperationKey& key = operation.key();
  const Header header{.type = Header::data,
                      .channel = key.channel,
                      .group = key.group,
                      .sequence = key.sequence,
                      .bytes = bytes};
  enqueue(rank, header, operation, data, bytes);
}

void Messenger::forget(Operation& operation) {
  const auto at = posted_.find(operation.key());
  if (at == posted_.end() || at->second != &operation) return;
  posted_.erase(at);
  drop(operation);
}

int64_t Messenger::attached_bytes(const Header& offer, int64_t from) {
  if (offer.attached < -1 || offer.attached > kMostAttached) refuse(from);
  return std::max<int64_t>(offer.attached, 0);
}

void Messenger::on_offer(const Header& offer, int64_t from, std::optional<Bytes> attached) {
  const OperationKey key = key_of(offer, from);
  if (const auto at = posted_.find(key); at != posted_.end())
    return at->second->on_offer(from, {static_cast<Kind>(offer.kind), offer.bytes, offer.root}, offer.want,
                                attached);
  Early& early = early_[static_cast<size_t>(from)];
  early.bytes += attached ? attached->size() : 0;
  if (early.offers.size() >= kMaxEarly || early.bytes > kMaxEarlyBytes)
    abort(fmt::format("{} is {} collectives ahead of {}, which has called none of them",
                      control_.describe(from), early.offers.size() + 1, control_.describe(rank())));
  early.offers.emplace(key, Early::Offered{offer, std::move(attached)});
}

Operation& Messenger::destination(const Header& data, int64_t from) {
  const auto at = posted_.find(key_of(data, from));
  if (data.type != Header::data || at == posted_.end() || !at->second->wants(from, data.bytes)) refuse(from);
  return *at->second;
}

OperationKey Messenger::key_of(const Header& header, int64_t from) const {
  OperationKey key{.group = header.group, .sequence = header.sequence};
  if (header.channel == OperationKey::collective) return key;
  key.channel =
      header.channel == OperationKey::message_out ? OperationKey::message_in : OperationKey::message_out;
  key.other = from;
  return key;
}

void Messenger::refuse(int64_t from) {
  abort(fmt::format("{} sent data that {} had not asked for", control_.describe(from),
                    control_.describe(rank())));
}

void Messenger::abort(const std::string& message) {
  control_.abort(message);
  control_.check();
  throw CommError(message);
}

}  // namespace moesaic::messages
