#pragma once
// The activations of one layer: which exist, which are kept from the forward to the backward pass, and how the others come
// back. The table of a layer is the page to read to know what lives during a step.
//
// A layer declares its rows once (ActivationTable). Recording its forward pass, make(x) gives the place where x is
// written: in the layer's kept block, or in the workspace. Recording its backward pass, need(x, rebuild) gives x at one
// fixed line: kept, or rebuilt there by the ops that `rebuild` records.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "device/program.h"

namespace moesaic {

/// Under which rebuild policies an activation is kept.
enum class Keep : uint8_t {
  always,     // the layer's input, routing, statistics
  selective,  // products of matmuls and attention: kept unless everything is rebuilt
  none,       // cheap to compute or to exchange again: kept only when nothing is rebuilt
  never,      // not needed in the backward pass
};

struct ActivationRow {
  std::string name;
  std::string letters;  // the shape in glossary letters: "T D"
  Shape shape;
  DType dtype = DType::f32;
  Keep keep = Keep::none;
  std::string rebuilt_by;  // in words, for the printed table: "RMSNorm of ln2_in"
};

class ActivationTable {
 public:
  void add(ActivationRow row) { rows_.push_back(std::move(row)); }
  const std::vector<ActivationRow>& rows() const { return rows_; }
  const ActivationRow& row(const std::string& name) const;
  static bool kept(const ActivationRow& row, Rebuild policy);
  /// Bytes from the kept block's start to a kept row; the first row added is at 0.
  int64_t offset(const std::string& name, Rebuild policy) const;
  /// Size of a layer's kept block.
  int64_t bytes(Rebuild policy) const;

 private:
  std::vector<ActivationRow> rows_;
};

/// The activations while one pass of one layer is recorded.
class Activations {
 public:
  /// Of a training pass: kept rows lie in `kept`. Both program and table must outlive this.
  Activations(Program& program, const ActivationTable& table, Slot kept, Rebuild policy);
  /// Of an evaluation: only the layer's input (the table's first row) lies in `kept`, everything else is a temp.
  static Activations evaluation(Program& program, const ActivationTable& table, Slot kept);

  /// Where the forward pass writes `name`.
  Handle make(const std::string& name);
  /// `name`, which is kept.
  Handle kept(const std::string& name);
  const Shape& shape(const std::string& name) const { return table_.row(name).shape; }
  /// `name`, kept or rebuilt: `rebuild(x)` records the ops that write x. At most once per name and pass.
  Handle need(const std::string& name, const std::function<void(Handle)>& rebuild);

 private:
  bool is_kept(const ActivationRow& row) const;

  Program& program_;
  const ActivationTable& table_;
  Slot slot_;
  Rebuild policy_;
  bool evaluation_ = false;
  std::map<std::string, Handle> handles_;
};

}  // namespace moesaic
