#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// How ranks sum their gradients.
enum class Reduction {
  /// In the order of the micro-batches, as a single process sums: the same bits for every number of ranks.
  /// The gradient of each micro-batch is sent.
  fixed_order,
  /// Each rank sums its own micro-batches and sends that sum: one gradient per rank and update. Rounding
  /// depends on the number of ranks when a rank has several micro-batches.
  local_first,
  /// As local_first, with Communicator::sum (MPI_Allreduce). Rounding depends on the number of ranks and on
  /// MPI.
  native,
};
EIGENFORMER_ENUM_NAMES(Reduction, "fixed-order", "local-first", "native")

/// The number format in which ranks send gradients.
enum class ReductionPrecision {
  full,  ///< the gradients' own type
  bf16,  ///< each gradient and their sum are rounded to bfloat16, sums are float: half the traffic
};
EIGENFORMER_ENUM_NAMES(ReductionPrecision, "full", "bf16")

/// How the ranks of a training communicate. Without effect for a single rank.
struct DistributedOptions {
  Reduction reduction = Reduction::fixed_order;             ///< how gradients are summed
  ReductionPrecision precision = ReductionPrecision::full;  ///< how gradients are sent
  index_t bucket_kib = 4096;  ///< gradients are sent in buckets of about this size (KiB), each when complete
  bool overlap = true;        ///< send while backward still runs, on a separate thread
  /// Shard the optimizer: each rank keeps the optimizer state of its part of the parameters and steps that
  /// part (ZeRO-1, Rajbhandari et al. 2020). Less memory, the same bits.
  bool shard_optimizer = false;

  /// Visits the fields with their names and descriptions, for files and command lines.
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

  /// Throws ValueError for reduction native with precision bf16.
  void validate() const {
    if (reduction == Reduction::native && precision == ReductionPrecision::bf16) {
      throw ValueError("training",
                       "reduction_precision is bf16 and reduction is native, in which MPI sums floats; "
                       "expected reduction fixed-order or local-first");
    }
  }
};

}  // namespace eigenformer
