package link

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Rate is how much a link sends: BitsPerSecond in the long run, and BurstBits
// at once after a pause. Both are counted with the link's own header. The zero
// value is no limit.
type Rate struct{ BitsPerSecond, BurstBits uint64 }

// Attributes of a tbf, and the struct that each has to have, by
// linux/pkt_sched.h.
const (
	tbfKind   = "tbf"
	tbfParms  = 1
	tbfRate64 = 4
	tbfBurst  = 6

	tbfParmsLen   = 36
	tbfRate       = 8  // rate.rate, bytes per second
	tbfLinkLayer  = 1  // rate.linklayer
	tbfLimit      = 24 // bytes that wait
	tbfBuffer     = 28 // what may go at once, in ticks
	linkLayerEth  = 1  // TC_LINKLAYER_ETHERNET
	handleRoot    = 0xffffffff
	sizeofTcmsg   = 20
	nanosPerTick  = 64 // PSCHED_SHIFT in net/pkt_sched.h
	nanosPerSec   = 1_000_000_000
	latencyDivide = 40 // of a second: 25 ms, as of the CNI plugin bandwidth
	// maxBurst keeps the kernel's arithmetic whole: bytes times a factor of 32
	// bits (psched_l2t_ns).
	maxBurst = math.MaxInt32
	// etherHeader is what is sent beside an MTU's bytes, with a VLAN's tag.
	etherHeader = 18
)

// Shape limits what the link of this index sends, by a token bucket filter in
// the place of its root qdisc; packets wait for 25 ms beyond a burst at most,
// and are dropped then. A rate below 8 bit/s is one of 8. A burst that no
// packet of the link's MTU would fit into is made as large as one, and one
// beyond 2 GiB smaller. The zero Rate removes the filter, and nothing else. A
// link that is missing gives ErrNotFound.
func (h *Handle) Shape(index int, r Rate) error {
	if err := h.shape(index, r); err != nil {
		return fmt.Errorf("limit what link %d sends to %d bit/s: %w", index, r.BitsPerSecond, err)
	}
	return nil
}

func (h *Handle) shape(index int, r Rate) error {
	if r.BitsPerSecond == 0 && r.BurstBits != 0 {
		return errors.New("a burst without a rate")
	}
	l, err := h.LinkByIndex(index)
	if err != nil {
		return err
	}
	have, err := h.bucket(index)
	want := bucketOf(r, l.MTU)
	if err != nil || have == want {
		return err
	}
	h.b.Reset()
	if want == (bucket{}) {
		h.b.Begin(unix.RTM_DELQDISC, 0)
		rootHeader(&h.b, index)
		if err := h.do(); !errors.Is(err, unix.ENOENT) { // gone since
			return err
		}
		return nil
	}
	h.b.Begin(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	rootHeader(&h.b, index)
	want.put(&h.b)
	return h.do()
}

// ShapedTo reads the Rate that Shape has set, the zero Rate where none is. It
// has what Shape made of the rate and the burst.
func (h *Handle) ShapedTo(index int) (Rate, error) {
	have, err := h.bucket(index)
	if err != nil {
		return Rate{}, fmt.Errorf("read what link %d may send: %w", index, err)
	}
	return have.rate(), nil
}

// bucket is a token bucket filter in the kernel's units. The burst is not
// among what is compared: the kernel tells it in ticks alone, which are
// rounded. The limit has it, in bytes.
type bucket struct {
	perSecond uint64 // bytes
	limit     uint32 // bytes: the burst and what comes in 25 ms
}

// bucketOf is the bucket of a Rate, for a link with this MTU.
func bucketOf(r Rate, mtu int) bucket {
	if r.BitsPerSecond == 0 {
		return bucket{}
	}
	perSecond := max(r.BitsPerSecond/8, 1)
	burst := min(max(r.BurstBits/8, uint64(max(mtu, 0))+etherHeader), maxBurst)
	return bucket{perSecond, uint32(burst + waiting(perSecond))}
}

// waiting is how many bytes come in 25 ms, no more than the half of what a
// limit can be.
func waiting(perSecond uint64) uint64 { return min(perSecond/latencyDivide, math.MaxInt32) }

func (b bucket) burst() uint64 {
	return uint64(b.limit) - min(waiting(b.perSecond), uint64(b.limit))
}

func (b bucket) rate() Rate {
	bits := b.perSecond * 8
	if b.perSecond > math.MaxUint64/8 {
		bits = math.MaxUint64
	}
	return Rate{bits, b.burst() * 8}
}

// rootHeader appends struct tcmsg of a link's root qdisc.
func rootHeader(b *netlink.Builder, index int) {
	var m [sizeofTcmsg]byte
	order.PutUint32(m[4:], uint32(index))
	order.PutUint32(m[12:], handleRoot)
	b.Raw(m[:])
}

// put appends the kind and the options. A link layer spares the kernel's old
// tables of rates.
func (b bucket) put(to *netlink.Builder) {
	to.String(unix.TCA_KIND, tbfKind)
	options := to.Nest(unix.TCA_OPTIONS)
	var p [tbfParmsLen]byte
	p[tbfLinkLayer] = linkLayerEth
	order.PutUint32(p[tbfRate:], uint32(min(b.perSecond, math.MaxUint32)))
	order.PutUint32(p[tbfLimit:], b.limit)
	order.PutUint32(p[tbfBuffer:], b.ticks())
	to.Bytes(tbfParms, p[:])
	if b.perSecond > math.MaxUint32 {
		to.Uint64(tbfRate64, b.perSecond)
	}
	// In bytes, for ticks are too coarse for high rates and too few for low.
	to.Uint32(tbfBurst, uint32(b.burst()))
	to.End(options)
}

// ticks is how long the burst takes, for kernels that do not know it in bytes.
func (b bucket) ticks() uint32 {
	seconds := float64(b.burst()) / float64(b.perSecond)
	return uint32(min(math.Ceil(seconds*nanosPerSec/nanosPerTick), math.MaxUint32))
}

// bucket reads a link's, the zero value where its root qdisc is no such.
func (h *Handle) bucket(index int) (found bucket, err error) {
	h.b.Reset()
	// The kernel tells who asks as it tells all who listen, so not without
	// ECHO (qdisc_get_notify in net/sched/sch_api.c), and nothing of a qdisc
	// that a link has by itself: then ACK is what ends the wait.
	h.b.Begin(unix.RTM_GETQDISC, unix.NLM_F_ECHO|unix.NLM_F_ACK)
	rootHeader(&h.b, index)
	err = h.list(unix.RTM_NEWQDISC, nil, func(p []byte) {
		if q, ok := parseQdisc(p, index); ok {
			found = q
		}
	})
	// Or it says that there is none.
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return found, err
}

// parseQdisc reads the payload of RTM_NEWQDISC about a link's root; ok is false
// if it is about another, or no bucket.
func parseQdisc(p []byte, index int) (b bucket, ok bool) {
	if len(p) < sizeofTcmsg || order.Uint32(p[4:]) != uint32(index) || order.Uint32(p[12:]) != handleRoot {
		return b, false
	}
	attributes := p[sizeofTcmsg:]
	if netlink.Text(netlink.Attribute(attributes, unix.TCA_KIND)) != tbfKind {
		return b, false
	}
	for kind, value := range netlink.Attributes(netlink.Attribute(attributes, unix.TCA_OPTIONS)) {
		switch {
		case kind == tbfParms && len(value) >= tbfParmsLen:
			b.limit = order.Uint32(value[tbfLimit:])
			if b.perSecond == 0 {
				b.perSecond = uint64(order.Uint32(value[tbfRate:]))
			}
		case kind == tbfRate64 && len(value) >= 8:
			b.perSecond = order.Uint64(value)
		}
	}
	return b, b.perSecond != 0
}
