#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace moesaic {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr int64_t kBlock = int64_t{1} << 16;  // index entries read at once

uint8_t code_of(DType type) {
  switch (type) {
    case DType::u8:
      return 1;
    case DType::i32:
      return 4;
    case DType::i64:
      return 5;
    case DType::u16:
      return 8;
    default:
      break;
  }
  fail<ConfigError>("token ids cannot be stored as {}: choose u8, u16, i32 or i64", name_of(type));
}

DType checked_id_type(DType type) {
  code_of(type);
  return type;
}

/// Calls f with a value of the C++ type of an id.
template <class F>
void with_id(DType type, F&& f) {
  if (type == DType::u8) return f(uint8_t());
  if (type == DType::u16) return f(uint16_t());
  if (type == DType::i32) return f(int32_t());
  if (type == DType::i64) return f(int64_t());
  MOESAIC_CHECK(false, "{}", name_of(type));
}

template <class T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

template <class T>
void read_array(const InputFile& index, int64_t offset, int64_t count, std::vector<T>& values) {
  values.resize(static_cast<size_t>(count));
  index.read(offset, std::as_writable_bytes(std::span(values)), "the arrays of a token index");
}

template <class T>
void append_raw(AtomicFile& file, std::span<const T> values) {
  file.write(std::as_bytes(values));
}

}  // namespace

TokenFile::TokenFile(const std::string& prefix)
    : prefix_(prefix), index_(prefix + ".idx"), ids_(prefix + ".bin") {
  check_header();
  check_sequences();
  check_documents();
}

void TokenFile::check_header() {
  const std::string& path = index_.path();
  std::array<std::byte, kHeaderBytes> header;
  index_.read(0, header, "the header of a token index");
  require<IoError>(std::memcmp(header.data(), kMagic.data(), kMagic.size()) == 0,
                   "{} does not begin with MMIDIDX: it is not the index of a token file", path);
  const auto version = load<uint64_t>(header, 9);
  require<IoError>(version == kVersion, "{} has format version {}, but only version {} is known", path,
                   version, kVersion);
  const auto code = load<uint8_t>(header, 17);
  const DType types[] = {DType::u8, DType::u16, DType::i32, DType::i64};
  const auto* type =
      std::find_if(std::begin(types), std::end(types), [&](DType t) { return code_of(t) == code; });
  require<IoError>(
      type != std::end(types),
      "{} says that ids have type code {}, but only 1 (u8), 4 (i32), 5 (i64) and 8 (u16) hold ids", path,
      code);
  dtype_ = *type;

  const auto sequences = load<uint64_t>(header, 18), documents = load<uint64_t>(header, 26);
  const auto room = static_cast<uint64_t>(index_.size() - kHeaderBytes);
  // Each count is bounded by the file before it is multiplied.
  require<IoError>(
      sequences <= room / 12 && documents <= room / 8 && documents >= 1 &&
          sequences * 12 + documents * 8 <= room,
      "{} has {} bytes, too few for its {} sequences and {} document entries: it is cut short or damaged",
      path, index_.size(), sequences, documents);
  require<IoError>(sequences * 12 + documents * 8 == room,
                   "{} holds {} bytes after its arrays: sequence modes of multimodal sets are not supported",
                   path, room - sequences * 12 - documents * 8);
  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(documents) - 1;
  pointers_at_ = kHeaderBytes + 4 * num_sequences_;
  documents_at_ = pointers_at_ + 8 * num_sequences_;
}

void TokenFile::check_sequences() {
  const std::string& path = index_.path();
  const int64_t bytes_per_id = size_of(dtype_);
  int64_t at = 0;
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers;
  for (int64_t first = 0; first < num_sequences_; first += kBlock) {
    const int64_t count = std::min(kBlock, num_sequences_ - first);
    read_array(index_, kHeaderBytes + 4 * first, count, lengths);
    read_array(index_, pointers_at_ + 8 * first, count, pointers);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = first + k, length = lengths[static_cast<size_t>(k)],
                    pointer = pointers[static_cast<size_t>(k)];
      require<IoError>(length >= 0, "{}: sequence {} has length {}", path, i, length);
      require<IoError>(pointer == at,
                       "{}: sequence {} starts at byte {}, but the ones before it end at byte {}", path, i,
                       pointer, at);
      require<IoError>(
          length <= (ids_.size() - at) / bytes_per_id,
          "{}: sequence {} ends outside {}, which has {} bytes: one of the two is damaged or from another "
          "set",
          path, i, ids_.path(), ids_.size());
      at += length * bytes_per_id;
    }
  }
  require<IoError>(at == ids_.size(),
                   "{} describes {} bytes, but {} has {}: one of the two is damaged or from another "
                   "set",
                   path, at, ids_.path(), ids_.size());
  num_tokens_ = at / bytes_per_id;
}

void TokenFile::check_documents() {
  const std::string& path = index_.path();
  int64_t before = 0;
  std::vector<int64_t> entries;
  for (int64_t start = 0; start <= num_documents_; start += kBlock) {
    const int64_t count = std::min(kBlock, num_documents_ + 1 - start);
    read_array(index_, documents_at_ + 8 * start, count, entries);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t d = start + k, first = entries[static_cast<size_t>(k)];
      require<IoError>(
          (d > 0 || first == 0) && first >= before && first <= num_sequences_,
          "{}: document entry {} is sequence {}, after {} and of {}: the entries must start at 0 and not "
          "go back",
          path, d, first, before, num_sequences_);
      before = first;
    }
  }
  require<IoError>(before == num_sequences_, "{}: the documents end at sequence {} of {}", path, before,
                   num_sequences_);
}

void TokenFile::read(int64_t begin, std::span<int32_t> out, int64_t vocab) const {
  const auto count = static_cast<int64_t>(out.size());
  MOESAIC_CHECK(begin >= 0 && begin <= num_tokens_ && count <= num_tokens_ - begin, "tokens {} + {} of {}",
                begin, count, num_tokens_);
  with_id(dtype_, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> stored(out.size());
    ids_.read(begin * static_cast<int64_t>(sizeof(T)), std::as_writable_bytes(std::span(stored)), "the ids");
    const int64_t bound = std::min<int64_t>(vocab, int64_t{1} << 31);
    for (size_t i = 0; i < out.size(); ++i) {
      const auto id = static_cast<int64_t>(stored[i]);
      require<ConfigError>(id >= 0 && id < bound,
                           "{}: token {} has id {}, outside the vocabulary of V = {}: set model.vocab to the "
                           "tokenizer's size, or prepare the data with the model's tokenizer",
                           ids_.path(), begin + static_cast<int64_t>(i), id, vocab);
      out[i] = static_cast<int32_t>(id);
    }
  });
}

int64_t TokenFile::document_start(int64_t d) const {
  MOESAIC_CHECK(d >= 0 && d <= num_documents_, "document {} of {}", d, num_documents_);
  std::array<int64_t, 1> field;
  const auto read = [&](int64_t offset) {
    index_.read(offset, std::as_writable_bytes(std::span(field)), "a document's start");
    return field[0];
  };
  const int64_t sequence = read(documents_at_ + 8 * d);
  if (sequence == num_sequences_) return num_tokens_;
  // Checked on opening; others may have written to the file since.
  require<IoError>(sequence >= 0 && sequence < num_sequences_, "{} was changed while in use", index_.path());
  const int64_t start = read(pointers_at_ + 8 * sequence) / size_of(dtype_);
  require<IoError>(start >= 0 && start <= num_tokens_, "{} was changed while in use", index_.path());
  return start;
}

std::vector<int64_t> TokenFile::document_starts(int64_t begin, int64_t end) const {
  int64_t low = 0,
          high = num_documents_ + 1;  // the first document that starts after begin lies in [low, high]
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (document_start(middle) > begin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::vector<int64_t> starts;
  for (int64_t d = low; d <= num_documents_; ++d) {
    const int64_t start = document_start(d);
    if (start > end) break;
    if (starts.empty() || starts.back() != start) starts.push_back(start);
  }
  return starts;
}

TokenFileWriter::TokenFileWriter(std::string prefix, DType dtype, int64_t max_sequence)
    : prefix_(std::move(prefix)),
      dtype_(checked_id_type(dtype)),
      max_sequence_(max_sequence),
      ids_(prefix_ + ".bin") {
  MOESAIC_CHECK(max_sequence >= 1 && max_sequence <= std::numeric_limits<int32_t>::max());
}

void TokenFileWriter::append(std::span<const int32_t> ids) {
  while (!ids.empty()) {
    if (open_tokens_ == max_sequence_) {
      not_last_.push_back(static_cast<int64_t>(lengths_.size()));
      end_sequence();
    }
    const auto part = ids.first(std::min(ids.size(), static_cast<size_t>(max_sequence_ - open_tokens_)));
    with_id(dtype_, [&](auto zero) {
      using T = decltype(zero);
      encoded_.resize(part.size() * sizeof(T));
      for (size_t i = 0; i < part.size(); ++i) {
        const auto stored = static_cast<T>(part[i]);
        require<ConfigError>(part[i] >= 0 && static_cast<int64_t>(stored) == part[i],
                             "{}.bin stores ids as {}, which cannot hold id {}", prefix_, name_of(dtype_),
                             part[i]);
        std::memcpy(encoded_.data() + i * sizeof(T), &stored, sizeof(T));
      }
    });
    ids_.write(encoded_);
    open_tokens_ += static_cast<int64_t>(part.size());
    ids = ids.subspan(part.size());
  }
}

void TokenFileWriter::end_sequence() {
  lengths_.push_back(static_cast<int32_t>(open_tokens_));
  open_tokens_ = 0;
}

void TokenFileWriter::end_document() {
  end_sequence();
}

void TokenFileWriter::finish() {
  MOESAIC_CHECK(open_tokens_ == 0, "the last document was not ended");
  AtomicFile index(prefix_ + ".idx");
  const uint8_t code = code_of(dtype_);
  const uint64_t counts[] = {lengths_.size(), lengths_.size() - not_last_.size() + 1};
  index.write(kMagic);
  append_raw(index, std::span<const uint64_t>(&kVersion, 1));
  append_raw(index, std::span<const uint8_t>(&code, 1));
  append_raw(index, std::span<const uint64_t>(counts));
  append_raw(index, std::span<const int32_t>(lengths_));
  int64_t pointer = 0;
  for (const int32_t length : lengths_) {
    append_raw(index, std::span<const int64_t>(&pointer, 1));
    pointer += length * size_of(dtype_);
  }
  const int64_t zero = 0;
  append_raw(index, std::span<const int64_t>(&zero, 1));
  auto not_last = not_last_.begin();
  for (int64_t i = 0; i < std::ssize(lengths_); ++i) {
    if (not_last != not_last_.end() && *not_last == i) {
      ++not_last;
      continue;
    }
    const int64_t next = i + 1;
    append_raw(index, std::span<const int64_t>(&next, 1));
  }
  // Without its index an id file is nothing, so a crash between these lines cannot leave a pair that does not
  // match.
  remove_tree(prefix_ + ".idx");
  ids_.commit();
  index.commit();
}

}  // namespace moesaic
