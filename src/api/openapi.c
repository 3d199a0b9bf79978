/* SPDX-License-Identifier: MIT */
/* GET /openapi.json: what there is, for programs. The text is src/api/openapi.json. */

#include "openapi.h"

#include "api/internal.h"

void openapi_get(struct call *call)
{
    out_put(&call->out, openapi[0].source, openapi[0].length);
    call_answer(call, 200);
}
