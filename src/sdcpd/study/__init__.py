"""What runs say.

intervals     Student's t over trials, for whatever is estimated from them
compare       mean curves, speed, end, epochs saved
tuning        equal tuning: the best settings of every algorithm
claims        the verdict on each claim of the paper
measurements  tables about finished models, kept row by row
quality       how sharp and diverse generated images are
modes         what plain AIS does not see of a model
timing        operations and seconds of an update, one model at a time (Table 1)
replay        the beginning of an archived run trained again
"""
