#include "data/text_stream.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 17;
constexpr int kMaxWindowLog = 27;  // 128 MiB

bool is_zstd(std::span<const std::byte> bytes) {
  uint32_t magic = 0;
  if (bytes.size() < sizeof magic) return false;
  std::memcpy(&magic, bytes.data(), sizeof magic);
  return magic == ZSTD_MAGICNUMBER || (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

}  // namespace

struct TextStream::Decoder {
  Decoder() : context(ZSTD_createDCtx()) {
    if (context == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, kMaxWindowLog);
  }
  ~Decoder() { ZSTD_freeDCtx(context); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  ZSTD_DCtx* context;
  bool between_frames = true;
};

TextStream::TextStream(const std::string& path) : input_(path), buffer_(kBufferBytes) {
  refill();
  const std::span<const std::byte> start(buffer_.data(), filled_);
  require<IoError>(
      start.size() < 2 || start[0] != std::byte{0x1f} || start[1] != std::byte{0x8b},
      "{} is compressed with gzip, which is not read: pipe it in, as in zcat FILE | moesaic data "
      "prepare - PREFIX",
      name());
  if (is_zstd(start)) {
    decoder_ = std::make_unique<Decoder>();
  } else {
    require<IoError>(!path.ends_with(".zst"), "{} is not zstd data, although its name ends in .zst", path);
  }
}

TextStream::~TextStream() = default;

void TextStream::refill() {
  at_ = 0;
  filled_ = input_.read(buffer_);
}

size_t TextStream::read(std::span<char> out) {
  size_t done = 0;
  while (done < out.size()) {
    if (at_ == filled_) refill();
    if (decoder_ == nullptr) {
      if (filled_ == 0) break;
      const size_t count = std::min(out.size() - done, filled_ - at_);
      std::memcpy(out.data() + done, buffer_.data() + at_, count);
      done += count;
      at_ += count;
      continue;
    }
    if (filled_ == 0 && decoder_->between_frames) break;
    ZSTD_inBuffer from{buffer_.data(), filled_, at_};
    ZSTD_outBuffer to{out.data(), out.size(), done};
    const size_t rest = ZSTD_decompressStream(decoder_->context, &to, &from);
    require<IoError>(
        ZSTD_getErrorCode(rest) != ZSTD_error_frameParameter_windowTooLarge,
        "{} needs a zstd window above the 128 MiB that are allowed: compress it with --long=27 at "
        "most",
        name());
    require<IoError>(ZSTD_isError(rest) == 0, "{} is damaged: zstd says \"{}\"", name(),
                     ZSTD_getErrorName(rest));
    require<IoError>(filled_ > 0 || to.pos > done, "{} is cut short inside a zstd frame", name());
    decoder_->between_frames = rest == 0;
    at_ = from.pos;
    done = to.pos;
  }
  return done;
}

}  // namespace moesaic
