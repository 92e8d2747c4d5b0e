#pragma once
// The spelling of every enum of config.h, in TOML, on the command line and in messages. Order = order of the
// values.
#include <array>
#include <concepts>
#include <string_view>

#include "config/config.h"

namespace moesaic {

template <class E>
struct EnumNames;

template <>
struct EnumNames<DeviceKind> {
  static constexpr std::array<std::string_view, 4> value{"cpu", "null", "cuda", "sim"};
};
template <>
struct EnumNames<AttentionStrategy> {
  static constexpr std::array<std::string_view, 3> value{"sp", "batch", "tp"};
};
template <>
struct EnumNames<ExpertStrategy> {
  static constexpr std::array<std::string_view, 2> value{"ep", "tp"};
};
template <>
struct EnumNames<Dispatch> {
  static constexpr std::array<std::string_view, 3> value{"auto", "a2a", "ag_rs"};
};
template <>
struct EnumNames<OverlapMode> {
  static constexpr std::array<std::string_view, 3> value{"auto", "none", "parts"};
};
template <>
struct EnumNames<Rebuild> {
  static constexpr std::array<std::string_view, 3> value{"none", "selective", "full"};
};
template <>
struct EnumNames<OverflowPolicy> {
  static constexpr std::array<std::string_view, 3> value{"repeat", "drop", "stop"};
};
template <>
struct EnumNames<ScoreFunction> {
  static constexpr std::array<std::string_view, 3> value{"softmax", "sigmoid", "sparsemixer"};
};
template <>
struct EnumNames<BalanceScope> {
  static constexpr std::array<std::string_view, 3> value{"sequence", "micro_batch", "global"};
};
template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::array<std::string_view, 2> value{"adamw", "sgd"};
};
template <>
struct EnumNames<DecaySchedule> {
  static constexpr std::array<std::string_view, 3> value{"constant", "cosine", "wsd"};
};
template <>
struct EnumNames<ComputeType> {
  static constexpr std::array<std::string_view, 2> value{"f32", "bf16"};
};
template <>
struct EnumNames<ReplayMode> {
  static constexpr std::array<std::string_view, 2> value{"inline", "chaos"};
};

template <>
struct EnumNames<Transport> {
  static constexpr std::array<std::string_view, 3> value{"auto", "sockets", "mpi"};
};
template <>
struct EnumNames<Launcher> {
  static constexpr std::array<std::string_view, 6> value{"auto",    "none",  "torchrun",
                                                         "openmpi", "mpich", "slurm"};
};

/// name_of(Dispatch::automatic) == "auto"
template <class E>
requires requires {
  EnumNames<E>::value;
}
constexpr std::string_view name_of(E value) {
  return EnumNames<E>::value.at(static_cast<size_t>(value));
}

}  // namespace moesaic
