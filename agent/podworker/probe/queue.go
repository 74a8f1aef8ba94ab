package probe

import "container/heap"

// queue is a heap of checks, the one that is due first on top.
type queue struct{ byDue }

// byDue implements heap.Interface.
type byDue []*check

func (q byDue) Len() int           { return len(q) }
func (q byDue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q byDue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *byDue) Push(x any) {
	c := x.(*check) //nolint:forcetypeassert // only add calls it
	c.index = len(*q)
	*q = append(*q, c)
}

// Pop is for package heap.
func (q *byDue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	c.index = -1
	return c
}

// add puts a check in, or in its new place.
func (q *queue) add(c *check) {
	if c.index >= 0 {
		heap.Fix(&q.byDue, c.index)
		return
	}
	heap.Push(&q.byDue, c)
}

// remove takes a check out if it is in.
func (q *queue) remove(c *check) {
	if c.index >= 0 {
		heap.Remove(&q.byDue, c.index)
	}
}

// top is the check that is due first, or nil.
func (q *queue) top() *check {
	if len(q.byDue) == 0 {
		return nil
	}
	return q.byDue[0]
}
