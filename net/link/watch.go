package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// subscription receives notifications of one kind through the library. The library
// ends it after an error: mostly ENOBUFS, when the socket's buffer overflows.
type subscription[T any] struct {
	updates chan T
	done    chan struct{}
}

// subscribe subscribes in the network namespace of the calling thread.
func subscribe[T any](to func(chan<- T, <-chan struct{}) error) (*subscription[T], error) {
	s := &subscription[T]{make(chan T), make(chan struct{})}
	if err := to(s.updates, s.done); err != nil {
		return nil, fmt.Errorf("subscribe to rtnetlink: %w", err)
	}
	return s, nil
}

// close ends the subscription. The library's goroutine ends only when its pending
// updates are received. The nil subscription has nothing to close.
func (s *subscription[T]) close() {
	if s == nil {
		return
	}
	close(s.done)
	for range s.updates {
	}
}

// errEnded means that subscriptions end as soon as they begin.
var errEnded = errors.New("rtnetlink subscription ended repeatedly")

// renewInterval is the minimum interval of new subscriptions after an error.
const renewInterval = time.Second

// renewals limits the rate of new subscriptions.
type renewals struct{ last time.Time }

func (r *renewals) next() error {
	if time.Since(r.last) < renewInterval {
		return errEnded
	}
	r.last = time.Now()
	return nil
}

// WatchRoutes calls each for every route that is added or removed in the network
// namespace of the calling thread, until ctx ends; it returns nil then. lost is
// called when notifications were lost. The caller then reads the routes again. Both
// are called by WatchRoutes alone.
func WatchRoutes(ctx context.Context, each func(r Route, removed bool), lost func()) error {
	var again renewals
	for renewed := false; ; renewed = true {
		routes, err := subscribe(netlink.RouteSubscribe)
		if err != nil {
			return err
		}
		if renewed {
			lost()
		}
		receiveRoutes(ctx, routes, each)
		routes.close()
		if ctx.Err() != nil {
			return nil
		}
		if err := again.next(); err != nil {
			return err
		}
	}
}

func receiveRoutes(ctx context.Context, routes *subscription[netlink.RouteUpdate], each func(r Route, removed bool)) {
	for {
		select {
		case <-ctx.Done():
			return
		case u, ok := <-routes.updates:
			if !ok {
				return
			}
			for _, r := range routesOf(u.Route) {
				each(r, u.Type == unix.RTM_DELROUTE)
			}
		}
	}
}

// Monitor reports changes of the links, addresses and default routes of a network
// namespace that may change the uplink or its addresses.
type Monitor struct {
	links     *subscription[netlink.LinkUpdate]
	addresses *subscription[netlink.AddrUpdate]
	routes    *subscription[netlink.RouteUpdate]
	begin     []Link // the links when the subscriptions began
}

// Listen returns a Monitor of the network namespace of the calling thread. Changes
// from then on are reported by Run, so that callers read the state after Listen. The
// caller must call Run or Close.
func Listen() (*Monitor, error) {
	m := &Monitor{}
	if err := m.subscribe(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Monitor) subscribe() (err error) {
	if m.links, err = subscribe(netlink.LinkSubscribe); err != nil {
		return err
	}
	if m.addresses, err = subscribe(netlink.AddrSubscribe); err != nil {
		return err
	}
	if m.routes, err = subscribe(netlink.RouteSubscribe); err != nil {
		return err
	}
	h, err := Open()
	if err != nil {
		return err
	}
	defer h.Close()
	m.begin, err = h.Links()
	return err
}

// Close closes a Monitor that was not run.
func (m *Monitor) Close() {
	m.links.close()
	m.addresses.close()
	m.routes.close()
	*m = Monitor{}
}

// Run calls told after each change until ctx ends. Then it closes the Monitor and
// returns nil. The caller reads the state again after a call. told is called by Run,
// must not block, and may be called often in a short time. Run must be called on a
// thread in the namespace of Listen: when notifications were lost, it subscribes
// again and calls told.
//
// The loopback interface and links for which ignore returns true, such as those of
// pods, are not reported; ignore may be nil. Nor are repetitions: an address whose
// lifetime is prolonged, for example. Only default routes of the main table and
// addresses of global scope count.
func (m *Monitor) Run(ctx context.Context, ignore func(Link) bool, told func()) error {
	defer m.Close()
	s := newSeen(ignore, m.begin)
	var again renewals
	for {
		changed, ok := m.next(ctx, s)
		if ctx.Err() != nil {
			return nil
		}
		if !ok {
			m.Close()
			err := again.next()
			if err == nil {
				err = m.subscribe()
			}
			if err != nil {
				return err
			}
			s = newSeen(ignore, m.begin)
		}
		if changed || !ok {
			told()
		}
	}
}

// next waits for a notification and reports whether it changes anything. ok is false
// if notifications were lost.
func (m *Monitor) next(ctx context.Context, s *seen) (changed, ok bool) {
	select {
	case <-ctx.Done():
		return false, true
	case u, ok := <-m.links.updates:
		return ok && s.linkUpdate(u), ok
	case u, ok := <-m.addresses.updates:
		return ok && s.addressUpdate(u), ok
	case u, ok := <-m.routes.updates:
		return ok && s.routeUpdate(u), ok
	}
}
