package local

import (
	"context"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/node/registration"
	"github.com/tinylet/tinylet/agent/source/offline"
)

// ClusterSource reads the state of the connection to the API server.
type ClusterSource struct {
	Metered   bool
	Identity  *identity.Identity
	Registrar *registration.Registrar
	Meter     *apiclient.Meter
	Journal   *offline.Journal
	// Problem returns the action that the administrator must take; "" is none.
	Problem func() string
}

// State returns the state and the conditions of the Node.
func (s *ClusterSource) State() *Cluster {
	out := &Cluster{
		Metered: s.Metered, Registered: s.Registrar.UID() != "", Problem: s.Problem(),
		Journal:    &Journal{State: s.Journal.State, Aside: s.Journal.Quarantined()},
		Conditions: Conditions(s.Registrar.Conditions(context.Background())),
	}
	if s.Journal.Store != nil {
		out.Journal.Secrets = s.Journal.Store.Secrets()
	}
	certificates := s.Identity.Stats()
	if expires := certificates.ClientExpiry; !expires.IsZero() {
		out.Expires = &expires
	}
	if expires := certificates.ServingExpiry; !expires.IsZero() {
		out.ServingExpires = &expires
	}
	out.Sent, out.Received = s.Meter.Total()
	out.SentToday, out.ReceivedToday = s.Meter.Today(time.Now())
	client := s.Identity.Current()
	if client == nil {
		return out
	}
	answered, failure := client.Contact()
	if !answered.IsZero() {
		out.LastResponse = &answered
	}
	if failure != nil {
		out.Failure = failure.Error()
	}
	return out
}
