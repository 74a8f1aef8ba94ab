package link

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Rate limits what a link sends: BitsPerSecond on average, and BurstBits at once
// after a pause. Link-layer headers count. The zero value is no limit.
type Rate struct{ BitsPerSecond, BurstBits uint64 }

const (
	nanosPerTick = 64 // PSCHED_SHIFT in net/pkt_sched.h
	nanosPerSec  = 1_000_000_000
	// queuesPerSecond is 1 s divided by the longest time in the queue: 25 ms, as in
	// the CNI plugin bandwidth.
	queuesPerSecond = 40
	// maxBurst avoids an overflow in the kernel, which multiplies bytes by a factor of
	// 32 bits (psched_l2t_ns).
	maxBurst = math.MaxInt32
	// etherHeader is the length of an Ethernet header with a VLAN tag.
	etherHeader = 18
)

// Shape limits what the link with this index sends. It sets a token bucket filter as
// its root qdisc. Packets beyond the burst wait for 25 ms at most, and are dropped
// then. A rate below 8 bit/s is raised to 8 bit/s, a burst below one packet of the
// link's MTU to one packet. A burst above 2 GiB is reduced to that. The zero Rate
// removes the filter, but no other qdisc. ErrNotFound if the link does not exist.
func (h *Handle) Shape(index int, r Rate) error {
	if err := h.shape(index, r); err != nil {
		return fmt.Errorf("limit link %d to %d bit/s: %w", index, r.BitsPerSecond, err)
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
	if want == (bucket{}) {
		root := &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT}}
		if err := translate(h.rt.QdiscDel(root)); !errors.Is(err, unix.ENOENT) { // removed meanwhile
			return err
		}
		return nil
	}
	return h.setBucket(index, want)
}

// ShapedTo returns the Rate that Shape has set, as adjusted by Shape; the zero Rate
// if there is none. ErrNotFound if the link does not exist.
func (h *Handle) ShapedTo(index int) (Rate, error) {
	_, err := h.LinkByIndex(index)
	var have bucket
	if err == nil {
		have, err = h.bucket(index)
	}
	if err != nil {
		return Rate{}, fmt.Errorf("read limit of link %d: %w", index, err)
	}
	return have.rate(), nil
}

// bucket is a token bucket filter in the kernel's units. The kernel reports the burst
// in ticks, which are rounded. The limit contains it in bytes.
type bucket struct {
	perSecond uint64 // bytes
	limit     uint32 // bytes: the burst and what arrives in 25 ms
}

// bucketOf returns the bucket of a Rate for a link with this MTU.
func bucketOf(r Rate, mtu int) bucket {
	if r.BitsPerSecond == 0 {
		return bucket{}
	}
	perSecond := max(r.BitsPerSecond/8, 1)
	burst := min(max(r.BurstBits/8, uint64(max(mtu, 0))+etherHeader), maxBurst)
	return bucket{perSecond, uint32(burst + queued(perSecond))}
}

// queued returns the bytes that arrive in 25 ms, bounded to half of the maximum limit.
func queued(perSecond uint64) uint64 { return min(perSecond/queuesPerSecond, math.MaxInt32) }

func (b bucket) burst() uint64 {
	return uint64(b.limit) - min(queued(b.perSecond), uint64(b.limit))
}

func (b bucket) rate() Rate {
	bits := b.perSecond * 8
	if b.perSecond > math.MaxUint64/8 {
		bits = math.MaxUint64
	}
	return Rate{bits, b.burst() * 8}
}

// bucket reads the root qdisc of a link; the zero value if it is another one.
func (h *Handle) bucket(index int) (bucket, error) {
	all, err := read(func() ([]netlink.Qdisc, error) { return h.rt.QdiscList(withIndex(index)) })
	for _, q := range all {
		if tbf, ok := q.(*netlink.Tbf); ok && tbf.Parent == netlink.HANDLE_ROOT {
			return bucket{tbf.Rate, tbf.Limit}, err
		}
	}
	return bucket{}, err
}

// setBucket sets the root qdisc of a link. The library sends the burst in ticks
// alone, with which the kernel limits it to what is sent in 4.3 s (2^32 ns): at 8
// bit/s no packet would pass. TCA_TBF_BURST is the burst in bytes. With a link layer
// the kernel needs no table of rates.
func (h *Handle) setBucket(index int, b bucket) error {
	parms := nl.TcTbfQopt{
		Rate:  nl.TcRateSpec{Linklayer: nl.LINKLAYER_ETHERNET, Rate: uint32(min(b.perSecond, math.MaxUint32))},
		Limit: b.limit, Buffer: b.ticks(),
	}
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_TBF_PARMS, parms.Serialize())
	if b.perSecond > math.MaxUint32 {
		options.AddRtAttr(nl.TCA_TBF_RATE64, nl.Uint64Attr(b.perSecond))
	}
	options.AddRtAttr(nl.TCA_TBF_BURST, nl.Uint32Attr(uint32(b.burst())))
	request := h.request(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	request.AddData(&nl.TcMsg{Ifindex: int32(index), Parent: netlink.HANDLE_ROOT})
	request.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("tbf")))
	request.AddData(options)
	return execute(request)
}

// ticks returns the time in which the burst is sent, for kernels without
// TCA_TBF_BURST.
func (b bucket) ticks() uint32 {
	seconds := float64(b.burst()) / float64(b.perSecond)
	return uint32(min(math.Ceil(seconds*nanosPerSec/nanosPerTick), math.MaxUint32))
}
