#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H
#include "cost.h"
#include "generator.h"
#include "measures.h"
#include "trainer.h"
#endif
