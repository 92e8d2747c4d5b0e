#include "report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

#include "base/file.h"

namespace moesaic {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

// A rotation and a constant, so that the checksum of bytes that hold checksums stays a good one
// (record_writer.h).
uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

template <class T>
void put_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

// Protobuf's wire types: how many bytes follow a key.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, uint64_t field, WireType type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_start(double wall_time, int64_t step) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_little_endian(event, std::bit_cast<uint64_t>(wall_time));
  if (step != 0) {  // proto3 leaves zeros out
    put_key(event, 2, kVarint);
    put_varint(event, static_cast<uint64_t>(step));
  }
  return event;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads the files of a folder in the order of their names, so the time comes first, in
// microseconds.
std::string new_file_in(const std::string& folder) {
  make_folders(folder);
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  return fmt::format("{}/events.out.tfevents.{:.6f}.{}.{}", folder, unix_seconds(), host.data(), getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

std::string tfrecord(std::string_view message) {
  std::string record;
  put_little_endian(record, static_cast<uint64_t>(message.size()));
  put_little_endian(record, masked_crc32c(record));
  record += message;
  put_little_endian(record, masked_crc32c(message));
  return record;
}

std::string version_event(double wall_time) {
  std::string event = event_start(wall_time, 0);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string session_start_event(double wall_time, int64_t step) {
  std::string status_start;
  put_key(status_start, 1, kVarint);
  put_varint(status_start, 1);
  std::string event = event_start(wall_time, step);
  put_bytes(event, 7, status_start);
  return event;
}

std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, kFixed32);
    put_little_endian(value, std::bit_cast<uint32_t>(scalar.value));
    put_bytes(summary, 1, value);
  }
  std::string event = event_start(wall_time, step);
  put_bytes(event, 5, summary);
  return event;
}

std::vector<Scalar> scalars_of(const StepMetrics& metrics) {
  std::vector<Scalar> scalars;
  const auto add = [&](std::string tag, double value) {
    scalars.push_back({std::move(tag), static_cast<float>(value)});
  };
  add("loss/train", metrics.loss);
  if (metrics.val_loss) add("loss/validation", *metrics.val_loss);
  add("loss/balance", metrics.aux_loss);
  add("loss/z", metrics.z_loss);
  add("train/grad_norm", metrics.grad_norm);
  add("train/lr", metrics.lr);
  add("train/tokens_per_s", metrics.tokens_per_s);
  if (metrics.mfu) add("train/mfu", *metrics.mfu);
  add("train/skipped", metrics.skipped ? 1 : 0);
  add("experts/balance", expert_balance(metrics.expert_load));
  int64_t dropped = 0;
  for (const int64_t layer : metrics.dropped) dropped += layer;
  add("experts/dropped", static_cast<double>(dropped));
  for (const auto& [purpose, bytes] : metrics.memory_bytes)
    add("memory/" + purpose, static_cast<double>(bytes));
  return scalars;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, int64_t first_step)
    : file_(new_file_in(folder)) {
  file_.write(tfrecord(version_event(unix_seconds())));
  if (first_step > 0) file_.write(tfrecord(session_start_event(unix_seconds(), first_step)));
}

void TensorBoardWriter::write(int64_t step, std::span<const Scalar> scalars) {
  file_.write(tfrecord(scalars_event(unix_seconds(), step, scalars)));
}

}  // namespace moesaic
