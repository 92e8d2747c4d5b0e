#include "tensor/activations.h"

#include <algorithm>

#include "base/check.h"

namespace moesaic {

const ActivationRow& ActivationTable::row(const std::string& name) const {
  const auto it =
      std::find_if(rows_.begin(), rows_.end(), [&](const ActivationRow& r) { return r.name == name; });
  MOESAIC_CHECK(it != rows_.end(), "no activation {}", name);
  return *it;
}

bool ActivationTable::kept(const ActivationRow& row, Rebuild policy) {
  switch (row.keep) {
    case Keep::always:
      return true;
    case Keep::selective:
      return policy != Rebuild::full;
    case Keep::none:
      return policy == Rebuild::none;
    case Keep::never:
      return false;
  }
  return false;
}

namespace {
int64_t padded_bytes(const ActivationRow& row) {
  return round_up(row.shape.numel() * size_of(row.dtype), 256);
}
}  // namespace

int64_t ActivationTable::offset(const std::string& name, Rebuild policy) const {
  int64_t at = 0;
  for (const ActivationRow& row : rows_) {
    if (row.name == name) return at;
    if (kept(row, policy)) at += padded_bytes(row);
  }
  MOESAIC_CHECK(false, "no activation {}", name);
  return 0;
}

int64_t ActivationTable::bytes(Rebuild policy) const {
  int64_t sum = 0;
  for (const ActivationRow& row : rows_)
    if (kept(row, policy)) sum += padded_bytes(row);
  return sum;
}

Activations::Activations(Program& program, const ActivationTable& table, Slot kept, Rebuild policy)
    : program_(program), table_(table), slot_(kept), policy_(policy) {}

Activations Activations::evaluation(Program& program, const ActivationTable& table, Slot kept) {
  Activations a(program, table, kept, Rebuild::full);
  a.evaluation_ = true;
  return a;
}

bool Activations::is_kept(const ActivationRow& row) const {
  return evaluation_ ? &row == &table_.rows().front() : ActivationTable::kept(row, policy_);
}

Handle Activations::make(const std::string& name) {
  Handle& handle = handles_[name];
  MOESAIC_CHECK(!handle, "{} is made twice", name);
  const ActivationRow& row = table_.row(name);
  handle = is_kept(row) ? kept(name) : program_.temp(name, row.dtype, row.shape);
  return handle;
}

Handle Activations::kept(const std::string& name) {
  const ActivationRow& row = table_.row(name);
  MOESAIC_CHECK(is_kept(row), "{} is not kept", name);
  Handle& handle = handles_[name];
  if (!handle) handle = program_.external(slot_, table_.offset(name, policy_), name, row.dtype, row.shape);
  return handle;
}

Handle Activations::need(const std::string& name, const std::function<void(Handle)>& rebuild) {
  const ActivationRow& row = table_.row(name);
  if (is_kept(row)) return kept(name);
  if (const auto it = handles_.find(name); it != handles_.end()) return it->second;
  const Handle handle = handles_[name] = program_.temp(name, row.dtype, row.shape);
  rebuild(handle);
  return handle;
}

}  // namespace moesaic
