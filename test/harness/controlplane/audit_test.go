package controlplane

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// auditLog has the form of what an API server writes, and breaks off.
const auditLog = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/nodes/edge-2/status","verb":"patch","user":{"username":"system:node:edge-1","groups":["system:nodes","system:authenticated"]},"userAgent":"tinylet","objectRef":{"resource":"nodes","name":"edge-2","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"status":"Failure","message":"node edge-1 is not allowed to modify node edge-2","reason":"Forbidden","code":403},"requestReceivedTimestamp":"2030-01-02T03:04:05.000006Z","stageTimestamp":"2030-01-02T03:04:05.000007Z","annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/nodes","user":{"username":"system:bootstrap:abcdef"},"responseStatus":{"code":403}}

{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/default/serviceaccounts/default/token","user":{"username":"system:node:edge-1"},"objectRef":{"resource":"serviceaccounts","subresource":"token"},"responseStatus":{"code":403,"message":"the UID in the bound object reference (a) does not match the UID in record. The object might have been deleted and then recreated"}}
{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/other/serviceaccounts/default/token","user":{"username":"system:node:edge-1"},"objectRef":{"resource":"serviceaccounts","subresource":"token"},"responseStatus":{"code":403,"message":"node requested token bound to a pod scheduled on a different node"}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/api/v1/nodes/edge-1","user":{"username":"system:node:edge-1"},"responseStatus":{"code":404}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/api/v1/secrets","user":{"username":"system:anonymous"},"responseStatus":{"code":403}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/li`

func TestAudit(t *testing.T) {
	events, err := ParseAudit([]byte(auditLog))
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 6 {
		t.Errorf("%d events, want 6", len(events))
	}
	if e := events[0]; e.Object.Subresource != "status" || e.Received.Year() != 2030 || e.User.Groups[0] != "system:nodes" {
		t.Errorf("event %+v", e)
	}
	var refused []string
	for _, e := range forbidden(events) {
		refused = append(refused, e.String())
	}
	want := []string{
		"system:node:edge-1: patch /api/v1/nodes/edge-2/status: 403 node edge-1 is not allowed to modify node edge-2",
		"system:bootstrap:abcdef: create /api/v1/nodes: 403 ",
		"system:node:edge-1: create /api/v1/namespaces/other/serviceaccounts/default/token: 403 node requested token bound to a pod scheduled on a different node",
	}
	if d := cmp.Diff(want, refused); d != "" {
		t.Error(d)
	}
}

func TestAuditRefusesWhatIsNoEvent(t *testing.T) {
	events, err := ParseAudit([]byte("{}\nhello\n{}\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2") || len(events) != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}
}
