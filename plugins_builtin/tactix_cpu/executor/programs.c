/* Tables, branches and loops in each other, to any depth, run without coming back to Python; compiled behind executor.c.
 * Between them may be steps that tell sizes, and go on where all behind them is placed for these, or has room for them.
 *
 * All is placed before it runs: an address that differs between runs is a word, in the arguments of a table or in what
 * is here, and whoever knows the address fills it in, the caller or a loop around. A run of a program ends, stops as a
 * kernel refused something or told another size, or stops for a while, so that the caller can look for signals; then it
 * goes on where it was.
 */
#include <string.h>

enum { TXE_TABLE, TXE_BRANCH, TXE_LOOP, TXE_TELLING, TXE_CHANGING, TXE_COUNTED, TXE_CHOSEN, TXE_GROWN, TXE_KINDS }; /* kinds of parts */
enum { TXE_OVER, TXE_LATER, TXE_REFUSED, TXE_DEPARTED }; /* how a run of a part ended; departed: a size is another */
enum { TXE_OUTSIDE, TXE_BETWEEN, TXE_INSIDE }; /* where a loop is: not begun, between two runs of its body, in one */

typedef struct {
    int64_t kind;
    void *what;
} txe_part;

typedef struct {
    int64_t parts;
    const txe_part *part;
    int64_t at; /* the part to go on with; the first between runs */
} txe_program;

typedef struct {
    txe_table *table;      /* 0: nothing */
    const int64_t *failed; /* not 0 once a kernel has refused something; 0 where none can */
} txe_steps;

/* A step that tells sizes by its first table and writes by them with the second. */
typedef struct {
    txe_steps tell, write;
    const int64_t *told;
    const int64_t *expected;
    int64_t sizes;
} txe_telling;

/* The same where what is behind it, up to the next such step, has room for other sizes than those that it was bound for,
 * as far as the arithmetic has values. What depends on them is bound again then. */
typedef struct {
    txe_telling step;
    const int64_t *place; /* of each size among the symbols; -1 - that where it must be what is there */
    int64_t *symbols;
    int64_t *changed; /* whether a size is another in this run */
    int64_t first;    /* whether it is the first such step of a run */
    int64_t away;     /* whether it is bound for other sizes than those expected */
    const txe_arithmetic *arithmetic;
    int64_t inputs;
    const int64_t *input; /* which symbols it takes */
    int64_t bindings;
    const txe_binding *const *binding;
} txe_changing;

typedef struct {
    const uint8_t *condition;
    txe_program *body[2]; /* where it does not hold, and where it does */
} txe_branch;

/* A word whose content differs between runs of a body: in run 0 `first`, if that is not 0, else and in run k
 * places[(k + turn) % 2] + k * stride. */
typedef struct {
    int64_t *slot;
    int64_t first;
    int64_t places[2];
    int64_t stride;
} txe_move;

/* What a state is after the last run: it is copied from where that wrote it, unless it lies in `to`. */
typedef struct {
    char *given; /* before the first run */
    char *places[2];
    char *to;
    int64_t bytes;
} txe_result;

typedef struct {
    int64_t at;
    int64_t run, stop;     /* the run to be made next, and the first that is not made: as the caller says, */
    const int64_t *most;   /* or, where this is not 0, from 0 up to what is here, */
    const uint8_t *start;  /* if this holds; 0: it does */
    int64_t turn;          /* so that the last run writes places[1], where nothing ends the loop before */
    int64_t *counter;      /* gets the number of the run; 0 for none */
    const uint8_t *going;  /* a run writes whether there is another; 0: there is */
    int64_t runs;          /* as many as there must be; -1: any number */
    txe_program *body;
    int64_t moves;
    const txe_move *move;
    int64_t results;
    const txe_result *result;
} txe_loop;

/* A loop that tells how often it ran: then what that means for what is behind it. */
typedef struct {
    txe_loop *loop;
    int64_t room;   /* rows that there is memory for; -1: any number */
    int64_t *count; /* gets how often it ran */
    txe_part sizes; /* TXE_TELLING or TXE_CHANGING, without tables */
} txe_counted;

/* A loop that tells sizes of what it gives, which are larger by as much after each run, states among them. */
typedef struct {
    txe_loop *loop; /* without results */
    int64_t room;   /* runs that there is memory for */
    int64_t results;
    const txe_result *result; /* at the size before the first run, */
    const int64_t *more;      /* and by how many bytes each is larger after a run */
    int64_t sizes;
    int64_t *told;
    const int64_t *begin, *step; /* of each size */
    txe_part then;               /* TXE_TELLING or TXE_CHANGING, without tables */
} txe_grown;

/* A branch that tells sizes of what it gives: then what these mean for what is behind it. */
typedef struct {
    txe_branch *branch;
    int64_t sizes;
    int64_t *told;
    const int64_t *of[2]; /* where the condition does not hold, and where it does */
    txe_part then;        /* TXE_TELLING or TXE_CHANGING, without tables */
} txe_chosen;

static int txe_advance(txe_program *p, uint64_t until);

static int txe_enter_loop(txe_loop *l) {
    l->at = TXE_BETWEEN;
    if (!l->most)
        return TXE_OVER;
    l->run = 0;
    l->stop = l->start && !*l->start ? 0 : *l->most;
    l->turn = l->stop & 1;
    return l->runs >= 0 && l->stop > l->runs ? TXE_REFUSED : TXE_OVER; /* there is no room for its rows */
}

static void txe_give_result(const txe_loop *l, const txe_result *r, int64_t bytes) {
    const char *found = l->run ? r->places[(l->run - 1 + l->turn) & 1] : r->given;
    if (found != r->to)
        memcpy(r->to, found, (size_t)bytes);
}

static int txe_leave_loop(txe_loop *l) {
    l->at = TXE_OUTSIDE;
    for (const txe_result *r = l->result; r < l->result + l->results; r++)
        txe_give_result(l, r, r->bytes);
    return l->runs >= 0 && l->run != l->runs ? TXE_REFUSED : TXE_OVER; /* there are rows that nothing wrote */
}

static void txe_begin_run(txe_loop *l) {
    const int64_t k = l->run;
    for (const txe_move *m = l->move; m < l->move + l->moves; m++)
        *m->slot = !k && m->first ? m->first : m->places[(k + l->turn) & 1] + k * m->stride;
    if (l->counter)
        *l->counter = k;
    l->at = TXE_INSIDE;
}

/* Departed before a run for whose rows there is no `room`; -1: there is for any number. */
static int txe_repeat_body(txe_loop *l, int64_t room, uint64_t until) {
    if (l->at == TXE_OUTSIDE && txe_enter_loop(l) != TXE_OVER)
        return TXE_REFUSED;
    while (l->run < l->stop) {
        if (l->run == room)
            return TXE_DEPARTED;
        if (l->at == TXE_BETWEEN)
            txe_begin_run(l);
        const int how = txe_advance(l->body, until);
        if (how != TXE_OVER)
            return how;
        l->at = TXE_BETWEEN;
        l->run++;
        if (l->going && !*l->going)
            break;
        if (l->run < l->stop && txe_now() >= until)
            return TXE_LATER;
    }
    return txe_leave_loop(l);
}

static int txe_run_steps(const txe_steps *s) {
    if (s->table)
        tx_run(s->table);
    return s->failed && *s->failed ? TXE_REFUSED : TXE_OVER;
}

static int txe_tell(const txe_telling *t) {
    if (txe_run_steps(&t->tell) != TXE_OVER)
        return TXE_REFUSED;
    for (int64_t i = 0; i < t->sizes; i++)
        if (t->told[i] != t->expected[i])
            return TXE_DEPARTED;
    return txe_run_steps(&t->write);
}

/* Bind for the sizes that are told; 0 where there is no room, or they make no sense. */
static int txe_bind_sizes(const txe_changing *c) {
    const txe_telling *t = &c->step;
    for (int64_t i = 0; i < t->sizes; i++)
        if (c->place[i] >= 0)
            c->symbols[c->place[i]] = t->told[i];
    for (int64_t i = 0; i < c->inputs; i++)
        c->arithmetic->values[i] = c->symbols[c->input[i]];
    if (!tx_evaluate(c->arithmetic))
        return 0;
    for (int64_t i = 0; i < c->bindings; i++)
        tx_bind(c->binding[i]);
    return 1;
}

static int txe_tell_changing(txe_changing *c) {
    const txe_telling *t = &c->step;
    if (txe_run_steps(&t->tell) != TXE_OVER)
        return TXE_REFUSED;
    int64_t changed = c->first ? 0 : *c->changed;
    for (int64_t i = 0; i < t->sizes; i++)
        if (c->place[i] >= 0)
            changed |= t->told[i] != t->expected[i];
    for (int64_t i = 0; i < t->sizes; i++)
        if (c->place[i] < 0 && t->told[i] != c->symbols[-1 - c->place[i]])
            return TXE_DEPARTED;
    *c->changed = changed;
    if ((changed || c->away) && !txe_bind_sizes(c))
        return TXE_DEPARTED;
    c->away = changed;
    return txe_run_steps(&t->write);
}

static int txe_make(const txe_part *part, uint64_t until);

static int txe_count_runs(txe_counted *c, uint64_t until) {
    const int how = txe_repeat_body(c->loop, c->room, until);
    if (how != TXE_OVER)
        return how;
    *c->count = c->loop->run;
    return txe_make(&c->sizes, until);
}

static int txe_repeat_and_grow(txe_grown *g, uint64_t until) {
    const int how = txe_repeat_body(g->loop, g->room, until);
    if (how != TXE_OVER)
        return how;
    const int64_t runs = g->loop->run;
    for (int64_t i = 0; i < g->results; i++)
        txe_give_result(g->loop, g->result + i, g->result[i].bytes + runs * g->more[i]);
    for (int64_t i = 0; i < g->sizes; i++)
        g->told[i] = g->begin[i] + runs * g->step[i];
    return txe_make(&g->then, until);
}

static int txe_take_branch(const txe_branch *b, uint64_t until) {
    return txe_advance(b->body[*b->condition != 0], until); /* nothing writes the condition before it is over */
}

static int txe_branch_and_tell(txe_chosen *c, uint64_t until) {
    const int how = txe_take_branch(c->branch, until);
    if (how != TXE_OVER)
        return how;
    memcpy(c->told, c->of[*c->branch->condition != 0], (size_t)c->sizes * sizeof *c->told);
    return txe_make(&c->then, until);
}

static int txe_make(const txe_part *part, uint64_t until) {
    if (part->kind == TXE_TABLE)
        return txe_run_steps(part->what);
    if (part->kind == TXE_TELLING)
        return txe_tell(part->what);
    if (part->kind == TXE_CHANGING)
        return txe_tell_changing(part->what);
    if (part->kind == TXE_LOOP)
        return txe_repeat_body(part->what, -1, until);
    if (part->kind == TXE_COUNTED)
        return txe_count_runs(part->what, until);
    if (part->kind == TXE_CHOSEN)
        return txe_branch_and_tell(part->what, until);
    if (part->kind == TXE_GROWN)
        return txe_repeat_and_grow(part->what, until);
    return txe_take_branch(part->what, until);
}

static int txe_advance(txe_program *p, uint64_t until) {
    for (; p->at < p->parts; p->at++) {
        const int how = txe_make(p->part + p->at, until);
        if (how != TXE_OVER)
            return how;
    }
    p->at = 0;
    return TXE_OVER;
}

static void txe_reset(txe_program *p);

static void txe_reset_loop(txe_loop *l) {
    l->at = TXE_OUTSIDE;
    txe_reset(l->body);
}

static void txe_reset_branch(txe_branch *b) {
    for (int i = 0; i < 2; i++)
        txe_reset(b->body[i]);
}

/* Forgets a run that was stopped. */
static void txe_reset(txe_program *p) {
    p->at = 0;
    for (const txe_part *part = p->part; part < p->part + p->parts; part++) {
        if (part->kind == TXE_BRANCH)
            txe_reset_branch(part->what);
        if (part->kind == TXE_CHOSEN)
            txe_reset_branch(((txe_chosen *)part->what)->branch);
        if (part->kind == TXE_LOOP)
            txe_reset_loop(part->what);
        if (part->kind == TXE_COUNTED)
            txe_reset_loop(((txe_counted *)part->what)->loop);
        if (part->kind == TXE_GROWN)
            txe_reset_loop(((txe_grown *)part->what)->loop);
    }
}

/* A word that gets the address of a buffer, and some bytes more. */
typedef struct {
    int64_t *slot;
    int64_t buffer;
    int64_t more;
} txe_place;

typedef struct {
    txe_program *program;
    int64_t how; /* the last turn ended; the caller writes TXE_OVER to begin another run */
    int64_t places;
    const txe_place *place;
    const int64_t *addresses;
} txe_start;

/* How many kinds of parts there are: plans of earlier versions have fewer. */
TXE_EXPORT int tx_parts(void) {
    return TXE_KINDS;
}

/* A run from its begin, or on from where it was stopped; whether the caller is to call again. */
TXE_EXPORT int tx_advance(txe_start *s) {
    if (s->how != TXE_LATER) {
        txe_reset(s->program);
        for (const txe_place *p = s->place; p < s->place + s->places; p++)
            *p->slot = s->addresses[p->buffer] + p->more;
    }
    s->how = txe_advance(s->program, txe_now() + TXE_TURN_NS);
    return s->how == TXE_LATER;
}

/* A builtin of Python over a capsule of what begins, as tx_call. */
TXE_EXPORT void *tx_call_advance(void *capsule, void *none) {
    (void)none;
    txe_start *s = tx_python.pointer(capsule, 0);
    void *state = tx_python.unlock();
    const int later = tx_advance(s);
    tx_python.lock(state);
    return tx_python.truth(later);
}
