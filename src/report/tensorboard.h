#pragma once
// TensorBoard event files without its libraries. A file is a sequence of TFRecords, each a length, its
// checksum, a protobuf message and the message's checksum; the first message names the version, the others
// hold scalars. Sources: TFRecord in tensorflow/core/lib/io/record_writer.h; tensorflow/core/util/event.proto
// (Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7) and
// framework/summary.proto (Summary.value = 1, tag = 1, simple_value = 2); CRC-32C in RFC 3720, appendix B.4.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/append_file.h"
#include "report/metrics.h"

namespace moesaic {

struct Scalar {
  std::string tag;  // "group/name": TensorBoard shows one panel per group
  float value = 0;
};

/// The scalars that a step shows: loss/*, train/*, experts/*, memory/*.
std::vector<Scalar> scalars_of(const StepMetrics& metrics);

class TensorBoardWriter {
 public:
  /// Starts a new event file in `folder`, which is created where it is absent. When `first_step` > 0 the run
  /// is a resumed one: a session start is written, upon which TensorBoard drops what older files hold at and
  /// after that step. Throws IoError.
  TensorBoardWriter(const std::string& folder, int64_t first_step);

  /// Appends one event with all scalars and the present time, and hands it to the system at once. Throws
  /// IoError.
  void write(int64_t step, std::span<const Scalar> scalars);

  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

// The parts, each a pure function.

/// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
/// The record of one message: uint64 length, masked CRC of it, message, masked CRC of that; little-endian.
std::string tfrecord(std::string_view message);
/// Serialised Event messages. `wall_time` is in seconds since 1970.
std::string version_event(double wall_time);
std::string session_start_event(double wall_time, int64_t step);
std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars);

}  // namespace moesaic
