// Rules of scores that are each wrong in a way: what a compiler says of them is tested. Without BAD only the
// one that is right.
#include "eigenformer/kernels/attention/attention_problem.hpp"

namespace ef = eigenformer;

#define WRONG 0
namespace right {
#include "bad_rule.hpp"
}
#ifdef BAD
#undef WRONG
#define WRONG 1
namespace says_nothing {
#include "bad_rule.hpp"
}
#undef WRONG
#define WRONG 2
namespace says_no {
#include "bad_rule.hpp"
}
#undef WRONG
#define WRONG 3
namespace other_signature {
#include "bad_rule.hpp"
}
#undef WRONG
#define WRONG 4
namespace for_double {
#include "bad_rule.hpp"
}
#undef WRONG
#define WRONG 5
namespace says_both {
#include "bad_rule.hpp"
}
#endif
