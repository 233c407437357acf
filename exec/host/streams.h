/* exec/host/streams.h: the host's streams: a queue and a thread each, working in issue order.
 *
 * Events    A RECORD marks how much has been issued on a stream; a WAIT holds another stream until
 *           that much is done. So WAIT always means the latest RECORD in issue order, even when an
 *           event is recorded again meanwhile.
 * Waiting   threads sleep; nothing spins, since ranks may have fewer cores than streams.
 * Failure   After an op fails its stream and the others skip what is left; sync gives the failure.
 */
#ifndef SF_EXEC_HOST_STREAMS_H
#define SF_EXEC_HOST_STREAMS_H

#include "exec/backend.h"

typedef struct sf_streams sf_streams;

/* Runs on the stream's thread. */
typedef sf_status (*sf_stream_run)(void *ctx, const sf_op_call *call);
/* Told once, on the thread of the op that failed first, before others learn of it. */
typedef void (*sf_stream_failed)(void *ctx, const sf_status *st);

sf_status sf_streams_open(int n_events, sf_stream_run run, sf_stream_failed failed, void *ctx, sf_streams **out);
/* Starts the thread of a stream unless it runs; push needs it. */
sf_status sf_streams_use(sf_streams *streams, sf_stream stream);

void sf_streams_push(sf_streams *streams, const sf_op_call *call);                 /* may wait for room */
void sf_streams_fill(sf_streams *streams, sf_stream stream, void *at, uint64_t bytes); /* with 0xff    */
void sf_streams_record(sf_streams *streams, sf_stream stream, int event);
void sf_streams_wait(sf_streams *streams, sf_stream stream, int event);

sf_status sf_streams_sync(sf_streams *streams);
void sf_streams_close(sf_streams *streams); /* after sync */

#endif
