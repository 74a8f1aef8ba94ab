package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Event is what the API server's audit log says of one request: the fields of
// audit.k8s.io/v1 that a test asks for.
type Event struct {
	Stage      string    `json:"stage"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	Verb       string    `json:"verb"` // get, list, watch, create, update, patch, delete, ...
	RequestURI string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	User       struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"user"`
	Object struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// String says who asked what, and what the answer was.
func (e Event) String() string {
	return fmt.Sprintf("%s: %s %s: %d %s", e.User.Username, e.Verb, e.RequestURI, e.Response.Code, e.Response.Message)
}

// ParseAudit reads an audit log, one event in a line. What follows the last
// end of a line is not read: the API server may be writing it.
func ParseAudit(log []byte) ([]Event, error) {
	var events []Event
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(log, []byte("\n"))
		if !whole {
			return events, nil
		}
		log = rest
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("parse line %d of the audit log: %w", n, err)
		}
		events = append(events, e)
	}
}

// forbidden returns the requests of nodes and of bootstrap tokens that the API
// server refused with 403: each is a request that a node must not make. It
// answers so, too, where a token is asked for a pod whose name another one has
// meanwhile: a node cannot know before the watch reports it, so that does not
// count.
func forbidden(events []Event) []Event {
	var refused []Event
	for _, e := range events {
		node := strings.HasPrefix(e.User.Username, "system:node:") || strings.HasPrefix(e.User.Username, "system:bootstrap:")
		if node && e.Response.Code == http.StatusForbidden && !e.overtaken() {
			refused = append(refused, e)
		}
	}
	return refused
}

// overtaken reports whether a token was requested for a pod that had been replaced.
func (e Event) overtaken() bool {
	return e.Object.Resource == "serviceaccounts" && e.Object.Subresource == "token" &&
		strings.Contains(e.Response.Message, "does not match the UID in record")
}
