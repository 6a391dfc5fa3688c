#pragma once

#include <array>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// How ranks add their gradients up.
enum class Reduction {
  /// In the order of the micro-batches, as one process would: the same bits for every number of ranks. Each
  /// micro-batch is sent on its own.
  fixed_order,
  /// Each rank adds up its own micro-batches first, and sends their sum: the traffic of one micro-batch an
  /// update. Rounding depends on the number of ranks when a rank has several.
  local_first,
  /// As local_first, by Communicator::sum: MPI_Allreduce. Rounding depends on the number of ranks and on MPI.
  native,
};
template <>
struct EnumNames<Reduction> {
  static constexpr std::array names = {"fixed-order", "local-first", "native"};
};

/// What ranks send for a gradient.
enum class ReductionPrecision {
  full,
  bf16,  ///< each gradient and their sum are rounded to bfloat16, sums are float: half the traffic
};
template <>
struct EnumNames<ReductionPrecision> {
  static constexpr std::array names = {"full", "bf16"};
};

/// How the ranks of a training work together. Without effect for one rank.
struct DistributedOptions {
  Reduction reduction = Reduction::fixed_order;
  ReductionPrecision precision = ReductionPrecision::full;
  index_t bucket_kib = 4096;  ///< gradients are sent in parts of about this size, each as soon as it is there
  bool overlap = true;        ///< send while backward still runs, on a thread of its own
  /// Each rank keeps the optimizer's state of its part of the parameters and steps that part (ZeRO-1,
  /// Rajbhandari et al. 2020): less memory, the same bits.
  bool shard_optimizer = false;

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"reduction",
                      "how gradients are summed over ranks: in the order of batches, within each rank first, "
                      "or by MPI"},
          self.reduction);
    visit(OptionField{"reduction_precision", "precision of gradients sent between ranks: float, or bfloat16"},
          self.precision);
    visit(OptionField{"bucket_kib", "KiB of gradients per message between ranks", Allowed::positive},
          self.bucket_kib);
    visit(OptionField{"overlap", "send gradients while backward is still running"}, self.overlap);
    visit(OptionField{"shard_optimizer", "each rank keeps only its part of the optimizer's state"},
          self.shard_optimizer);
  }

  /// Throws ValueError for fields that do not go together.
  void validate() const {
    if (reduction == Reduction::native && precision == ReductionPrecision::bf16) {
      throw ValueError("training",
                       "reduction_precision is bf16 and reduction is native, in which MPI sums floats; "
                       "expected reduction fixed-order or local-first");
    }
  }
};

}  // namespace eigenformer
