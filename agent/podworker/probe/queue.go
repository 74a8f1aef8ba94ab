package probe

import "container/heap"

// queue is a heap of checks with the earliest due time on top.
type queue []*check

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	c := x.(*check) //nolint:forcetypeassert // only add calls it
	c.index = len(*q)
	*q = append(*q, c)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	c.index = -1
	return c
}

// add adds a check. If it is queued, add moves it by its due time.
func (q *queue) add(c *check) {
	if c.index >= 0 {
		heap.Fix(q, c.index)
		return
	}
	heap.Push(q, c)
}

func (q *queue) remove(c *check) {
	if c.index >= 0 {
		heap.Remove(q, c.index)
	}
}

// top returns the check with the earliest due time, or nil.
func (q queue) top() *check {
	if len(q) == 0 {
		return nil
	}
	return q[0]
}
