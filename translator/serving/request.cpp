#include "translator/serving/request.hpp"

namespace eigenformer {

const char* name_of(RequestStatus status) {
  switch (status) {
    case RequestStatus::accepted:
      return "accepted";
    case RequestStatus::queue_full:
      return "queue_full";
    case RequestStatus::too_large:
      return "too_large";
    case RequestStatus::shut_down:
      return "shut_down";
    case RequestStatus::done:
      return "done";
    case RequestStatus::failed:
      return "failed";
    case RequestStatus::cancelled:
      return "cancelled";
    case RequestStatus::deadline_exceeded:
      break;
  }
  return "deadline_exceeded";
}

}  // namespace eigenformer
